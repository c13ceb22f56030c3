#!lua flags=no-writes
-- The newest jobs: those in a pool first, then those that wait, then those that ended.
--
-- Below the prefix: leases, alive, ended, job:ID, decisions:ID (all read).
--
-- ARGV: limit, then the fields to show
-- Answers: for each job its id, its newest decision or '', and the fields' values
-- include base
local limit = tonumber(ARGV[1])
local fields = { unpack(ARGV, 2) }
local shown, seen = {}, {}
local function show(ids)
  for _, id in ipairs(ids) do
    if #shown >= limit then return end
    if not seen[id] then
      seen[id] = true
      local values = call('HMGET', P .. 'job:' .. id, unpack(fields))
      if values[1] then
        shown[#shown + 1] = { id, call('LINDEX', P .. 'decisions:' .. id, 0) or '', values }
      end
    end
  end
end
show(call('ZRANGE', P .. 'leases', 0, limit - 1))
show(call('ZREVRANGE', P .. 'alive', 0, limit - 1))
show(call('LRANGE', P .. 'ended', 0, limit - 1))
return shown
