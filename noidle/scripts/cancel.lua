#!lua flags=allow-oom
-- Ends a held or leased job at once, marks a running one.
--
-- Keys: those of base.lua and ending.lua.
--
-- ARGV: id, a name of this call, so that a repeat after a lost answer says the same
-- Answers: 1 cancelled or marked, 0 unknown or ended
-- include base
-- include ending
local id, name = unpack(ARGV)
local record = read(id, ENDING)
local state = record.state
if state == 'held' or state == 'leased' then
  call('HSET', P .. 'job:' .. id, 'cancelled_by', name)
  end_without_result(id, record, 'cancelled', 'cancelled', 'cancelled before it started')
  return 1
end
if state == 'running' then
  call('HSET', P .. 'job:' .. id, 'state', 'cancelling')
end
if state == 'running' or state == 'cancelling' then return 1 end
return call('HGET', P .. 'job:' .. id, 'cancelled_by') == name and 1 or 0
