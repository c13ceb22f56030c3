-- How a job ends: the result, Celery's entry, the stream's last entry and every time-to-live.
--
-- Beside those of base.lua this part touches, below the prefix,
--   alive             zset        every job that has not ended
--   expires           zset        id → when it must have started
--   deadlines         zset        id → when it must have ended
--   ended             list        the ids that ended last
--   after             list        ids whose Celery links are to be sent
--   models            hash        name → what is known of a model
--   result:ID         string      the result
--   stream:ID         stream      what was emitted
--   decisions:ID      list        why it went where it went
-- and, without the prefix,
--   celery-task-meta-ID           Celery's entry, and the channel of that name
local ENDING = {
  'state', 'set', 'order', 'pool', 'keep', 'after', 'group', 'parent', 'kind', 'model', 'accepted',
  'held_since', 'held_ms', 'queued_ms', 'first', 'attempt', 'seed', 'token', 'spent', 'deadline_s',
  'cause', 'cause_at', 'waits',
}
local ENDED_KEPT = 1000
-- links wait for a router longer than a short-lived result does
local AFTER_S = 86400
local AFTER_KEPT = 100000

-- days since 1970 to a calendar date, after H. Hinnant, "chrono-compatible low-level date
-- algorithms", civil_from_days
local function iso_date(moment)
  local seconds = math.floor(moment / 1000)
  local rest = seconds % 86400
  local z = math.floor(seconds / 86400) + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor(
    (doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  local micros = math.floor((moment - seconds * 1000) * 1000)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06d+00:00', year, month,
    doy - math.floor((153 * mp + 2) / 5) + 1, math.floor(rest / 3600),
    math.floor(rest % 3600 / 60), rest % 60, micros)
end

local function celery_entry(id, record, status, value)
  local family = ''
  if record.group then family = ',"group_id":' .. cjson.encode(record.group) end
  if record.parent then family = family .. ',"parent_id":' .. cjson.encode(record.parent) end
  return '{"status":"' .. status .. '","result":' .. value
    .. ',"traceback":null,"children":[],"date_done":"' .. iso_date(NOW) .. '"' .. family
    .. ',"task_id":' .. cjson.encode(id) .. '}'
end

local function celery_error(module, name, message)
  return '{"exc_type":"' .. name .. '","exc_message":[' .. cjson.encode(message)
    .. '],"exc_module":"' .. module .. '"}'
end

-- `own` is a JSON object of other times, without its closing brace
local function times(record, own, first)
  local held = tonumber(record.held_ms) or 0
  if record.state == 'held' then held = held + since(record.held_since) end
  local fields = { '"held_ms":' .. ms(held), '"total_ms":' .. ms(since(record.accepted)) }
  if first then
    fields[#fields + 1] = '"ttft_ms":' .. ms(math.max(0, first - record.accepted))
  end
  if record.queued_ms and not string.find(own, '"queued_ms"', 1, true) then
    fields[#fields + 1] = '"queued_ms":' .. ms(record.queued_ms)
  end
  return own .. (own == '{' and '' or ',') .. table.concat(fields, ',') .. '}'
end

-- a model that only this job was to create is not expected any more
local function forget_planned(id, model)
  local info = call('HGET', P .. 'models', model)
  if info and cjson.decode(info).planned == id then
    call('HDEL', P .. 'models', model)
  end
end

local function end_record(id, record, state, result, entry)
  local key = P .. 'job:' .. id
  local keep = tonumber(record.keep)
  local ttl = record.after and math.max(keep, AFTER_S) or keep
  -- 1. nothing waits for it, nothing is promised to it
  if record.state == 'held' then
    unhold(id, record.set)
    end_wait(id, record)
    call('HSET', key, 'held_ms', ms((tonumber(record.held_ms) or 0) + since(record.held_since)))
    call('HDEL', key, 'held_since')
  elseif record.pool then
    release(id, record.pool)
  end
  call('ZREM', P .. 'alive', id)
  call('ZREM', P .. 'expires', id)
  call('ZREM', P .. 'deadlines', id)
  if record.kind == 'train' and state ~= 'done' then forget_planned(id, record.model) end
  -- 2. the record keeps what status shows
  call('HSET', key, 'state', state, 'ended', ms(NOW))
  call('HDEL', key, 'job', 'facts', 'token', 'claim', 'checkpoint', 'said', 'leave')
  -- 3. whoever waits learns it
  call('SET', P .. 'result:' .. id, result, 'EX', ttl)
  call('SETEX', 'celery-task-meta-' .. id, keep, entry)
  call('PUBLISH', 'celery-task-meta-' .. id, entry)
  call('XADD', P .. 'stream:' .. id, '*', 'end', state)
  -- 4. nothing of it stays for ever
  call('EXPIRE', key, ttl)
  call('EXPIRE', P .. 'stream:' .. id, keep)
  call('EXPIRE', P .. 'decisions:' .. id, keep)
  call('LPUSH', P .. 'ended', id)
  call('LTRIM', P .. 'ended', 0, ENDED_KEPT - 1)
  -- 5. the router goes on
  if record.after then
    call('LPUSH', P .. 'after', id)
    call('LTRIM', P .. 'after', 0, AFTER_KEPT - 1)
  end
  if record.after or call('EXISTS', P .. 'held') == 1 then wake() end
end

-- Ends a job that no engine gives a result for. `error` is a JobError as JSON, or nil.
local function end_without_result(id, record, state, code, message, error)
  error = error or cjson.encode({ code = code, message = message })
  local parts = { '{"id":', cjson.encode(id), ',"state":"', state, '","attempt":',
    record.attempt or '0', ',"times":', times(record, '{', tonumber(record.first)) }
  if record.kind then parts[#parts + 1] = ',"kind":' .. cjson.encode(record.kind) end
  if record.model then parts[#parts + 1] = ',"model":' .. cjson.encode(record.model) end
  if record.seed then parts[#parts + 1] = ',"seed":' .. record.seed end
  if record.pool then parts[#parts + 1] = ',"pool":' .. cjson.encode(record.pool) end
  if state == 'failed' then parts[#parts + 1] = ',"error":' .. error end
  parts[#parts + 1] = '}'
  local entry
  if state == 'failed' then
    local name = code == 'invalid' and 'InvalidJob' or 'JobFailed'
    entry = celery_entry(id, record, 'FAILURE', celery_error('noidle.errors', name, message))
  else
    entry = celery_entry(id, record, 'REVOKED',
      celery_error('celery.exceptions', 'TaskRevokedError', message))
  end
  call('HSET', P .. 'job:' .. id, 'why', message)
  end_record(id, record, state, table.concat(parts), entry)
end

-- Ends a job that no pool has begun, or that is held again, because its deadline passed.
local function end_overdue(id, record)
  local message = string.format('its deadline, %g s after it was accepted, passed before it could end',
    tonumber(record.deadline_s))
  end_without_result(id, record, 'failed', 'deadline', message)
end
