#!lua flags=allow-oom
-- Keeps why jobs wait.
--
-- Below the prefix, for each job: job:ID, decisions:ID.
--
-- ARGV: for each decision its job, the decision as JSON, and what makes it a new one
-- include base
local DECISIONS_KEPT = 16
for i = 1, #ARGV, 3 do
  local id, decision, said = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local record = read(id, { 'state', 'said' })
  if record.state == 'held' and record.said ~= said then
    call('HSET', P .. 'job:' .. id, 'said', said)
    call('LPUSH', P .. 'decisions:' .. id, decision)
    call('LTRIM', P .. 'decisions:' .. id, 0, DECISIONS_KEPT - 1)
  end
end
return 1
