#!lua flags=allow-oom
-- Ends a job that cannot be accepted, unless the id belongs to one that goes on or is done.
--
-- Keys: those of base.lua and ending.lua.
--
-- ARGV: id, code, message, JobError as JSON, the record's fields and values
-- include base
-- include ending
local id, code, message, error = unpack(ARGV, 1, 4)
local key = P .. 'job:' .. id
local state = call('HGET', key, 'state')
local again = state == 'failed' or state == 'cancelled' or state == 'expired'
if state and not again then return 0 end
if state then
  call('DEL', key, P .. 'stream:' .. id, P .. 'decisions:' .. id)
end
call('HSET', key, 'accepted', ms(NOW), unpack(ARGV, 5))
end_without_result(id, read(id, ENDING), 'failed', code, message, error)
return 1
