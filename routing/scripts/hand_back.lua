#!lua flags=allow-oom
-- Returns a lease; what was emitted stays.
--
-- Keys: those of base.lua, ending.lua and crash.lua.
--
-- ARGV: id, token, 1 if its engine crashed or '', crashes that end a job
-- Answers: 1 returned (or the job ended), 0 stale
-- include base
-- include ending
-- include crash
local id, token, fell, limit = unpack(ARGV)
local record = read(id, CRASHING)
if record.token ~= token then return record.spent == 'back:' .. token and 1 or 0 end
call('HSET', P .. 'job:' .. id, 'spent', 'back:' .. token)
if record.state == 'leased' then
  hold_again(id, record)
elseif fell == '1' then
  crashed(id, record, limit)
elseif record.state == 'cancelling' then
  end_without_result(id, record, 'cancelled', 'cancelled', 'cancelled while it ran')
else
  hold_again(id, record)
end
return 1
