#!lua flags=allow-oom
-- Ends a held job that cannot be placed.
--
-- Keys: those of base.lua and ending.lua, and below the prefix decisions:ID.
--
-- ARGV: id, code, message, JobError as JSON, the decision as JSON or ''
-- Answers: 1 failed, 0 not held
-- include base
-- include ending
local id, code, message, error, decision = unpack(ARGV)
local DECISIONS_KEPT = 16
local record = read(id, ENDING)
if record.state ~= 'held' then return 0 end
if decision ~= '' then
  call('LPUSH', P .. 'decisions:' .. id, decision)
  call('LTRIM', P .. 'decisions:' .. id, 0, DECISIONS_KEPT - 1)
end
end_without_result(id, record, 'failed', code, message, error)
return 1
