#!lua flags=allow-oom
-- The heads of the held sets, with all that the policy must know of them; ends what expired, and
-- what waits past its deadline.
--
-- Below the prefix: held, held:SET, expires, deadlines, job:ID; of jobs that end all that
-- ending.lua names.
--
-- ARGV: heads a set, heads a class, turn (which sets are shown where a class has more sets than
--   heads), ms until a job that is late and has a lease is looked at again.
-- Answers: JSON arrays [facts, order, accepted, held since, tokens emitted, alone, storage], each
--   behind the last after a record separator, which stands in no JSON: whoever asks often knows
--   most of them already, and need not read those.
-- include base
-- include ending
local per_set, per_class, turn, later = unpack(ARGV)
local EXPIRED_AT_ONCE = 200
local CLASSES = { 'interactive', 'standard', 'batch', 'background' }

-- 1. End what waited too long
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'expires', '-inf', ms(NOW), 'LIMIT', 0,
    EXPIRED_AT_ONCE)) do
  local record = read(id, ENDING)
  if record.state == 'held' then
    end_without_result(id, record, 'expired', 'expired', 'expired before it could start')
  elseif record.state == 'leased' then
    call('ZADD', P .. 'expires', ms(NOW + later), id)
  else
    call('ZREM', P .. 'expires', id)
  end
end

for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'deadlines', '-inf', ms(NOW), 'LIMIT', 0,
    EXPIRED_AT_ONCE)) do
  local record = read(id, ENDING)
  if record.state == 'held' or record.state == 'leased' then
    end_overdue(id, record)
  elseif record.state == 'running' or record.state == 'cancelling' then
    -- its pool hears of it when it reports; it may be held again before that
    call('ZADD', P .. 'deadlines', ms(NOW + later), id)
  else
    call('ZREM', P .. 'deadlines', id)
  end
end

-- 2. Sort the sets into classes
local sets = {}
for _, class in ipairs(CLASSES) do sets[class] = {} end
for _, set in ipairs(call('SMEMBERS', P .. 'held')) do
  local class = sets[string.match(set, '^(%a+):')]
  if class then class[#class + 1] = set end
end

-- 3. Take heads, as many of every set of a class
local heads = {}
local function take(set, count)
  local found = call('ZRANGE', P .. 'held:' .. set, 0, count - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    -- the one loop that runs for every head at every look: no table for its record
    local values = call('HMGET', P .. 'job:' .. found[i], 'facts', 'accepted', 'held_since',
      'tokens', 'alone', 'storage')
    if values[1] then
      heads[#heads + 1] = '[' .. values[1] .. ',' .. found[i + 1] .. ',' .. values[2] .. ','
        .. values[3] .. ',' .. (values[4] or '0') .. ',' .. (values[5] or '0') .. ','
        .. (values[6] and cjson.encode(values[6]) or 'null') .. ']'
    else
      unhold(found[i], set)
      call('ZREM', P .. 'alive', found[i])
    end
  end
end
for _, class in ipairs(CLASSES) do
  local names = sets[class]
  table.sort(names)
  local shown = math.min(#names, per_class)
  local count = math.min(per_set, math.max(1, math.floor(per_class / math.max(1, #names))))
  local first = shown < #names and turn * shown % #names or 0
  for i = 0, shown - 1 do
    take(names[(first + i) % #names + 1], count)
  end
end
return table.concat(heads, '\30')
