#!lua flags=allow-oom
-- Takes or renews the right to decide.
--
-- Below the prefix: pump, fence.
--
-- ARGV: router, ms the role lasts
-- Answers: the fence number, or 0 while another router holds the role
-- include base
local router, role_ms = unpack(ARGV)
local role = call('GET', P .. 'pump')
if not role then
  local fence = call('INCR', P .. 'fence')
  call('SET', P .. 'pump', fence .. ' ' .. router, 'PX', role_ms)
  return fence
end
local fence, holder = string.match(role, '^(%d+) (.*)$')
if holder ~= router then return 0 end
call('PEXPIRE', P .. 'pump', role_ms)
return tonumber(fence)
