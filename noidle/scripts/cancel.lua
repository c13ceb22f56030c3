#!lua flags=allow-oom
-- Ends a held or leased job at once, marks a running one.
--
-- Keys: those of base.lua and ending.lua, and below the prefix revocation:NAME:ID.
--
-- ARGV: id, a name of this call, so that a repeat after a lost answer says the same, ms in which
--   others may make it too, or '': they must not cancel what is sent again under this id
-- Answers: 1 cancelled or marked, 0 unknown or ended
-- include base
-- include ending
local id, name, heard_ms = unpack(ARGV)
local heard = P .. 'revocation:' .. name .. ':' .. id
if heard_ms ~= '' and call('EXISTS', heard) == 1 then return 1 end

local function cancelled()
  if heard_ms ~= '' then call('SET', heard, '1', 'PX', heard_ms) end
  return 1
end

local record = read(id, ENDING)
local state = record.state
if state == 'held' or state == 'leased' then
  call('HSET', P .. 'job:' .. id, 'cancelled_by', name)
  end_without_result(id, record, 'cancelled', 'cancelled', 'cancelled before it started')
  return cancelled()
end
if state == 'running' then
  call('HSET', P .. 'job:' .. id, 'state', 'cancelling')
end
if state == 'running' or state == 'cancelling' then return cancelled() end
return call('HGET', P .. 'job:' .. id, 'cancelled_by') == name and 1 or 0
