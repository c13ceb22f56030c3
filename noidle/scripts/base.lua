-- What every script of the board starts with: the clock, the record, holding and releasing.
--
-- KEYS[1] is the prefix; below it this part touches
--   job:ID            hash        the record
--   held, held:SET    set, zset   ids that wait, in order
--   leases            zset        id → end of its lease
--   pool:POOL:leases  hash        id → what it reserves
--   wake              list        the pump waits on it
local P = KEYS[1]
local call = redis.call

local function clock()
  local time = call('TIME')
  return time[1] * 1000 + time[2] / 1000
end
local NOW = clock()

-- times keep their microseconds: %.14g, Lua's own way, would cut them
local function ms(value)
  return string.format('%.3f', value)
end

local function read(id, names)
  local values = call('HMGET', P .. 'job:' .. id, unpack(names))
  local record = {}
  for i, name in ipairs(names) do
    record[name] = values[i] or nil
  end
  return record
end

local function since(moment)
  return math.max(0, NOW - (tonumber(moment) or NOW))
end

-- record: accepted, deadline_s
local function overdue(record)
  return record.deadline_s and NOW >= record.accepted + 1000 * record.deadline_s
end

-- What the job was held for counts up to now. `record`: held_since, cause, cause_at, waits; `unsaid`:
-- the cause where none was noted.
local function end_wait(id, record, unsaid)
  local cause = record.cause or unsaid
  if not cause or cause == '' then return end
  local waits = record.waits and cjson.decode(record.waits) or {}
  waits[cause] = (waits[cause] or 0) + since(record.cause_at or record.held_since)
  call('HSET', P .. 'job:' .. id, 'waits', cjson.encode(waits))
  if record.cause then call('HDEL', P .. 'job:' .. id, 'cause', 'cause_at') end
end

local function wake()
  if call('EXISTS', P .. 'wake') == 0 then
    call('LPUSH', P .. 'wake', '1')
  end
end

local function hold(id, set, order)
  call('ZADD', P .. 'held:' .. set, order, id)
  call('SADD', P .. 'held', set)
end

local function unhold(id, set)
  local key = P .. 'held:' .. set
  call('ZREM', key, id)
  if call('EXISTS', key) == 0 then
    call('SREM', P .. 'held', set)
  end
end

local function release(id, pool)
  call('ZREM', P .. 'leases', id)
  call('HDEL', P .. 'pool:' .. pool .. ':leases', id)
end

-- record: set, order, pool
local function hold_again(id, record)
  local key = P .. 'job:' .. id
  release(id, record.pool)
  call('HSET', key, 'state', 'held', 'held_since', ms(NOW))
  call('HDEL', key, 'token', 'pool', 'claim', 'leave')
  hold(id, record.set, record.order)
  wake()
end
