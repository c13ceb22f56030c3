#!lua flags=allow-oom
-- Takes leases back: what a pool has claimed is asked to leave at its next report, what it has not
-- is held again.
--
-- Below the prefix: pump (read), and for each wish job:ID, decisions:ID, the class and state of the
-- job it is for, and for an unclaimed one held, held:SET, leases, pool:POOL:leases, wake.
--
-- ARGV: the role, preemptions in a row that a job bears, then for each wish 6 values: id, token,
--   the job it is for or '' where memory runs out, 1 if the run's memory is to be freed or '', the
--   decision as JSON, what makes the decision a new one.
-- Answers: one character a wish, 1 granted or 0
-- include base
local DECISIONS_KEPT = 16
local RANKS = { interactive = 1, standard = 2, batch = 3, background = 4 }
local role, bound = ARGV[1], tonumber(ARGV[2])
if call('GET', P .. 'pump') ~= role then return string.rep('0', (#ARGV - 2) / 6) end

-- Only what is higher and still waits may take from what is lower and not protected. Memory that
-- runs out asks nobody.
local function may(record, other)
  if other == '' then return true end
  if (tonumber(record.row) or 0) >= bound then return false end
  local wanting = read(other, { 'state', 'class' })
  return wanting.state == 'held' and RANKS[wanting.class] < RANKS[record.class]
end

local function take(id, record, free, decision, said)
  local key = P .. 'job:' .. id
  call('HINCRBY', key, 'preemptions', 1)
  call('HINCRBY', key, 'row', 1)
  call('HSET', key, 'said', said)
  call('LPUSH', P .. 'decisions:' .. id, decision)
  call('LTRIM', P .. 'decisions:' .. id, 0, DECISIONS_KEPT - 1)
  if record.state == 'leased' then
    hold_again(id, record)
  else
    call('HSET', key, 'leave', free == '1' and 'free' or 'pause')
  end
end

local answers = {}
for i = 3, #ARGV, 6 do
  local id, token, other, free = unpack(ARGV, i, i + 3)
  local record = read(id, { 'state', 'token', 'pool', 'set', 'order', 'class', 'row', 'leave' })
  local answer = '0'
  local going = record.state == 'leased' or record.state == 'running'
  if going and record.token == token then
    if record.leave then
      -- asked already: at most it is to free more than it was
      if free == '1' then call('HSET', P .. 'job:' .. id, 'leave', 'free') end
      answer = '1'
    elseif may(record, other) then
      take(id, record, free, ARGV[i + 4], ARGV[i + 5])
      answer = '1'
    end
  end
  answers[#answers + 1] = answer
end
return table.concat(answers)
