#!lua
-- Records and holds a job, once per id.
--
-- Below the prefix: job:ID, held, held:SET, wake, alive, refused, expires, deadlines, models, full, retry (read), leases
-- (counted), and of an ended job sent again stream:ID, result:ID, decisions:ID.
-- Without the prefix: celery-task-meta-ID of an ended job sent again.
--
-- ARGV: id, digest, delivery, set, held limit, model, tokens wanted or '', ms to expiry or '',
--   planned ModelInfo or '', order or '' for that of acceptance, ms to the deadline or '', then the
--   record's fields and values.
-- Answers: accepted | known | different | full, why | crowded, held jobs, seconds or ''
--   | unknown_model, names… | context, tokens
-- include base
local REFUSED_KEPT = 1000
local id, digest, delivery, set, limit, model = unpack(ARGV, 1, 6)
local tokens, expires, planned, order, deadline = unpack(ARGV, 7, 11)
local key = P .. 'job:' .. id

-- 1. the same id again
local old = read(id, { 'state', 'digest', 'delivery' })
local again = old.state == 'failed' or old.state == 'cancelled' or old.state == 'expired'
if old.state then
  if old.delivery == delivery then
    -- a call repeated after a lost answer, or a message delivered twice
    return { string.sub(delivery, 1, 5) == 'call:' and 'accepted' or 'known' }
  end
  if not again then
    return { old.digest == digest and 'known' or 'different' }
  end
end

-- 2. room for one more
-- whoever asks why the job is nowhere finds it among the last that were refused
local function remember(entry)
  entry.id, entry.at, entry.set, entry.model = id, NOW, set, model
  call('LPUSH', P .. 'refused', cjson.encode(entry))
  call('LTRIM', P .. 'refused', 0, REFUSED_KEPT - 1)
end

local why = call('GET', P .. 'full')
if why then
  remember({ why = why })
  return { 'full', why }
end
local held = call('ZCARD', P .. 'alive') - call('ZCARD', P .. 'leases')
if held >= tonumber(limit) then
  local retry = call('GET', P .. 'retry') or ''
  remember({ held = held, retry_s = tonumber(retry) })
  return { 'crowded', tostring(held), retry }
end

-- 3. a model that fits; while no pool has named its models, every model may turn up
local info = call('HGET', P .. 'models', model)
if info then
  local context = cjson.decode(info).context
  if tokens ~= '' and type(context) == 'number' and tonumber(tokens) > context then
    return { 'context', tostring(context) }
  end
elseif planned ~= '' then
  call('HSET', P .. 'models', model, planned)
else
  local models = call('HGETALL', P .. 'models')
  local names = {}
  local known = false
  for i = 1, #models, 2 do
    names[#names + 1] = models[i]
    known = known or not cjson.decode(models[i + 1]).planned
  end
  if known then return { 'unknown_model', unpack(names, 1, 50) } end
end

-- 4. record and hold
if again then
  call('DEL', key, P .. 'stream:' .. id, P .. 'result:' .. id, P .. 'decisions:' .. id,
    'celery-task-meta-' .. id)
end
local now = ms(NOW)
if order == '' then order = now end
call('HSET', key, 'state', 'held', 'accepted', now, 'held_since', now, 'set', set, 'order', order,
  'digest', digest, 'delivery', delivery, 'model', model, unpack(ARGV, 12))
if expires ~= '' then
  local moment = ms(NOW + expires)
  call('HSET', key, 'expires_at', moment)
  call('ZADD', P .. 'expires', moment, id)
end
if deadline ~= '' then call('ZADD', P .. 'deadlines', ms(NOW + deadline), id) end
call('ZADD', P .. 'alive', now, id)
hold(id, set, order)
wake()
return { 'accepted' }
