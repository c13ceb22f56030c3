#!lua flags=allow-oom
-- The next ended job whose Celery links are to be sent.
--
-- Below the prefix: after, after:taken, job:ID and result:ID (read).
--
-- ARGV: ms after which a job that was taken and not sent is given out again
-- Answers: nothing, or id, result as JSON, envelope as JSON
-- include base
local taken = P .. 'after:taken'
local function next_id()
  local old = call('ZRANGEBYSCORE', taken, '-inf', ms(NOW - ARGV[1]), 'LIMIT', 0, 1)
  return old[1] or call('RPOP', P .. 'after')
end

local id = next_id()
while id do
  local record = read(id, { 'envelope', 'after' })
  local result = call('GET', P .. 'result:' .. id)
  if record.after and result then
    call('ZADD', taken, ms(NOW), id)
    return { id, result, record.envelope }
  end
  -- sent already, or its id was sent again, or it was kept too long
  call('ZREM', taken, id)
  id = next_id()
end
return {}
