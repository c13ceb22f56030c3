#!lua flags=allow-oom
-- Puts messages back that a router took and did not live to note.
-- KEYS[1] lists of the routers   sorted set: list -> Redis time (ms) its router was last seen
-- KEYS[2] this router's list     messages taken, newest first
-- KEYS[3] route queue            list, read from the right
-- ARGV[1] ms after which a router counts as gone
-- ARGV[2] '1' to empty this router's own list too: it starts, so nothing of it is under way
-- Touches besides: the lists of routers that are gone, named by KEYS[1].
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, KEYS[2])

local lists = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[1]))
for _, list in ipairs(lists) do
  redis.call('ZREM', KEYS[1], list)
end
if ARGV[2] == '1' then
  lists[#lists + 1] = KEYS[2]
end

local returned = 0
for _, list in ipairs(lists) do
  while redis.call('LMOVE', list, KEYS[3], 'LEFT', 'RIGHT') do
    returned = returned + 1
  end
end
return returned
