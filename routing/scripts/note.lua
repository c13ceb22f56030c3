#!lua flags=allow-oom
-- Keeps why jobs wait.
--
-- Below the prefix, for each job: job:ID, decisions:ID.
--
-- ARGV: for each decision its job, the decision as JSON, what makes it a new one, and what the job
--   waits for or ''
-- include base
local DECISIONS_KEPT = 16

-- the first cause that is noted counts from the beginning of the wait
local function waits_for(id, record, cause)
  if cause == '' or cause == record.cause then return end
  local from = record.cause and ms(NOW) or record.held_since
  end_wait(id, record)
  call('HSET', P .. 'job:' .. id, 'cause', cause, 'cause_at', from)
end

for i = 1, #ARGV, 4 do
  local id, decision, said, cause = unpack(ARGV, i, i + 3)
  local record = read(id, { 'state', 'said', 'held_since', 'cause', 'cause_at', 'waits' })
  if record.state == 'held' and record.said ~= said then
    waits_for(id, record, cause)
    call('HSET', P .. 'job:' .. id, 'said', said)
    call('LPUSH', P .. 'decisions:' .. id, decision)
    call('LTRIM', P .. 'decisions:' .. id, 0, DECISIONS_KEPT - 1)
  end
end
return 1
