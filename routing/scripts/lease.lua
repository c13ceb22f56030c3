#!lua flags=allow-oom
-- Grants leases and pushes their Celery messages, as long as the caller holds the pump's role.
--
-- Below the prefix: pump (read), pool:POOL:mark (read), and for each lease job:ID, held,
-- held:SET, leases, pool:POOL:leases, decisions:ID. Without the prefix: the lease's queue.
--
-- ARGV: the role, ms a lease lasts, then for each lease 15 values: id, pool, queue, token,
--   message, KV tokens, memory bytes, slots, KV tokens in all or '', memory free or '', alone,
--   decision, what makes the decision a new one, what the job waited for or '', the other pools
--   that memory is shared with as JSON or ''.
-- Answers: one character a lease, 1 granted or 0
-- include base
-- include load
local DECISIONS_KEPT = 16
-- a pool's own queue must not outlive the pool for ever
local QUEUE_S = 7 * 86400
local role, lease_ms = ARGV[1], ARGV[2]
local NONE = string.rep('0', (#ARGV - 2) / 15)
if call('GET', P .. 'pump') ~= role then return NONE end

local loads = {}
local function room_in(pool)
  if not loads[pool] then
    local load = load_of(pool)
    load.open = call('GET', P .. 'pool:' .. pool .. ':mark') or ''
    load.open = string.sub(load.open, 1, 5) == 'open '
    loads[pool] = load
  end
  return loads[pool]
end

local function fits(load, want)
  if not load.open or load.alone or load.count + 1 > want.slots then return false end
  if want.alone and load.count > 0 then return false end
  if want.kv_total and load.kv + want.kv > want.kv_total then return false end
  if not want.memory_free then return true end
  local taken = load.memory
  for _, pool in ipairs(want.sharers ~= '' and cjson.decode(want.sharers) or {}) do
    taken = taken + room_in(pool).memory
  end
  return taken + want.memory <= want.memory_free
end

local function grant(id, record, want, load)
  local key = P .. 'job:' .. id
  unhold(id, record.set)
  end_wait(id, record, want.cause)
  local held = (tonumber(record.held_ms) or 0) + since(record.held_since)
  call('HSET', key, 'state', 'leased', 'token', want.token, 'pool', want.pool, 'leased', ms(NOW),
    'held_ms', ms(held), 'said', want.said)
  call('HDEL', key, 'held_since')
  call('ZADD', P .. 'leases', ms(NOW + lease_ms), id)
  call('HSET', P .. 'pool:' .. want.pool .. ':leases', id,
    string.format('%.0f %.0f %s 0', want.kv, want.memory, want.alone and '1' or '0'))
  call('LPUSH', P .. 'decisions:' .. id, want.decision)
  call('LTRIM', P .. 'decisions:' .. id, 0, DECISIONS_KEPT - 1)
  call('LPUSH', want.queue, want.message)
  if want.queue == want.pool then call('EXPIRE', want.queue, QUEUE_S) end
  load.count = load.count + 1
  load.kv = load.kv + want.kv
  load.memory = load.memory + want.memory
  load.alone = load.alone or want.alone
end

local answers = {}
for i = 3, #ARGV, 15 do
  local id = ARGV[i]
  local want = { pool = ARGV[i + 1], queue = ARGV[i + 2], token = ARGV[i + 3],
    message = ARGV[i + 4], kv = tonumber(ARGV[i + 5]), memory = tonumber(ARGV[i + 6]),
    slots = tonumber(ARGV[i + 7]), kv_total = tonumber(ARGV[i + 8]),
    memory_free = tonumber(ARGV[i + 9]), alone = ARGV[i + 10] == '1',
    decision = ARGV[i + 11], said = ARGV[i + 12],
    cause = ARGV[i + 13], sharers = ARGV[i + 14] }
  local record = read(id, { 'state', 'set', 'token', 'held_ms', 'held_since', 'alone',
    'expires_at', 'cause', 'cause_at', 'waits' })
  want.alone = want.alone or record.alone == '1'
  local answer = '0'
  if record.state == 'leased' and record.token == want.token then
    answer = '1'
  elseif record.state == 'held' and NOW < (tonumber(record.expires_at) or math.huge) then
    local load = room_in(want.pool)
    if fits(load, want) then
      grant(id, record, want, load)
      answer = '1'
    end
  end
  answers[#answers + 1] = answer
end
return table.concat(answers)
