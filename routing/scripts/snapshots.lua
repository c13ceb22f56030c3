#!lua flags=no-writes
-- What pools published lately.
--
-- Below the prefix: pools, pool:POOL:snapshot or pool:POOL:detail (read).
--
-- ARGV: snapshot or detail
-- Answers: one JSON object a pool that has one
-- include base
local found = {}
for _, pool in ipairs(call('ZRANGE', P .. 'pools', 0, -1)) do
  local text = call('GET', P .. 'pool:' .. pool .. ':' .. ARGV[1])
  if text then found[#found + 1] = text end
end
return found
