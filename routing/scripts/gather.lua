#!lua flags=allow-oom
-- Moves messages that were sent with a Celery priority into their queue's own list.
--
-- Without the prefix: QUEUE, and QUEUE \6\22 N for the priorities N from 1 to 9.
--
-- ARGV: the queue
-- Answers: how many messages were moved
-- include base
local AT_ONCE = 1000
local queue = ARGV[1]
local moved = 0
for priority = 1, 9 do
  local side = queue .. '\6\22' .. priority
  -- producers push on the left, consumers pop on the right
  while moved < AT_ONCE and call('LMOVE', side, queue, 'RIGHT', 'LEFT') do
    moved = moved + 1
  end
end
return moved
