#!lua flags=allow-oom
-- Ends a training slice: its checkpoint becomes the current one, its model's revision the newest,
-- and the job is held again by the service it received.
--
-- Below the prefix: job:ID, models, held, held:SET, leases, pool:POOL:leases, wake; of a
-- cancelled job all that ending.lua names.
--
-- ARGV: id, token, checkpoint as JSON, its storage, its step, model, ModelInfo as JSON, seconds
-- Answers: 1 yielded or cancelled, 0 stale
-- include base
-- include ending
local id, token, checkpoint, storage, step, model, info, service = unpack(ARGV)
local key = P .. 'job:' .. id
local record = read(id, { 'service', 'leave', unpack(ENDING) })

-- 1. Only the holder of the lease, once
local running = record.state == 'running' or record.state == 'cancelling'
if not running or record.token ~= token then
  return record.spent == 'yield:' .. token and 1 or 0
end
call('HSET', key, 'spent', 'yield:' .. token)

-- 2. What the slice reached counts even for a job that was cancelled meanwhile
call('HSET', P .. 'models', model, info)
if record.state == 'cancelling' then
  end_without_result(id, record, 'cancelled', 'cancelled', 'cancelled between two slices')
  return 1
end

-- 3. Hold it where only pools that can read the checkpoint take it
local order = (tonumber(record.service) or 0) + service
local before, size = string.match(record.set, '^([^|]*|[^|]*|[^|]*|)[^|]*(|.*)$')
record.set = before .. storage .. size
record.order = order
call('HSET', key, 'checkpoint', checkpoint, 'storage', storage, 'step', step, 'best', step,
  'service', order, 'order', order, 'set', record.set)
-- a slice that went well clears the job of suspicion
call('HDEL', key, 'alone', 'crashes', 'falls')
-- a whole one may be preempted as often as the first
if not record.leave then call('HDEL', key, 'row') end
hold_again(id, record)
return 1
