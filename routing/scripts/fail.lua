#!lua flags=allow-oom
-- Ends a held job that cannot be placed.
--
-- Keys: those of base.lua and ending.lua.
--
-- ARGV: id, code, message, JobError as JSON
-- Answers: 1 failed, 0 not held
-- include base
-- include ending
local id, code, message, error = unpack(ARGV)
local record = read(id, ENDING)
if record.state ~= 'held' then return 0 end
end_without_result(id, record, 'failed', code, message, error)
return 1
