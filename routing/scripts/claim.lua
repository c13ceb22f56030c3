#!lua flags=allow-oom
-- Makes a leased job the claiming pool's own, once.
--
-- Below the prefix: job:ID, leases, expires, pool:POOL:leases, pool:POOL:shared, stream:ID
-- (read); of an expired job all that ending.lua names.
--
-- ARGV: id, token, pool, process id, a name of this call (so that a repeat after a lost answer
--   is no second claim), ms a lease lasts.
-- Answers: stale | cancelled | elsewhere, pool | claimed, job, seed, attempt, text, tokens,
--   revision, checkpoint, accepted, held ms, leased, first token, now
-- include base
-- include ending
local id, token, pool, pid, name, lease_ms = unpack(ARGV)
local SHARED_MS = 86400000
local key = P .. 'job:' .. id
local record = read(id, { 'state', 'token', 'pool', 'claim', 'expires_at', 'attempt', 'leased',
  'queued_ms', 'job', 'seed', 'tokens', 'bytes', 'revision', 'checkpoint', 'accepted', 'held_ms',
  'first', 'deadline_s' })

local function take()
  record.attempt = (tonumber(record.attempt) or 0) + 1
  call('HSET', key, 'state', 'running', 'attempt', record.attempt, 'claim', name, 'pid', pid,
    'claimed', ms(NOW), 'queued_ms', ms((tonumber(record.queued_ms) or 0) + since(record.leased)))
  call('HDEL', key, 'moved')
  call('ZADD', P .. 'leases', ms(NOW + lease_ms), id)
  -- once started, a job does not expire
  if record.expires_at then
    call('HDEL', key, 'expires_at')
    call('ZREM', P .. 'expires', id)
  end
  -- memory counts as unseen from now on; who runs beside it may be to blame for a crash
  local leases = P .. 'pool:' .. pool .. ':leases'
  local entry = call('HGET', leases, id)
  if entry and not string.find(entry, '^%d+ 0 ') then
    call('HSET', leases, id, (string.gsub(entry, '%S+$', ms(NOW))))
  end
  if call('HLEN', leases) > 1 then
    call('SET', P .. 'pool:' .. pool .. ':shared', ms(NOW), 'PX', SHARED_MS)
  end
end

local function emitted()
  local texts, tokens = {}, {}
  for _, entry in ipairs(call('XRANGE', P .. 'stream:' .. id, '-', '+')) do
    local fields = entry[2]
    for i = 1, #fields, 2 do
      if fields[i] == 't' then texts[#texts + 1] = fields[i + 1] end
      if fields[i] == 'k' then tokens[#tokens + 1] = string.sub(fields[i + 1], 2, -2) end
    end
  end
  return table.concat(texts), '[' .. table.concat(tokens, ',') .. ']'
end

-- 1. Whose is it
if record.state == 'cancelled' then return { 'cancelled' } end
local repeated = record.state == 'running' and record.claim == name
if record.token ~= token or not (record.state == 'leased' or repeated) then return { 'stale' } end
if record.pool ~= pool then return { 'elsewhere', record.pool } end
if not repeated and NOW >= (tonumber(record.expires_at) or math.huge) then
  end_without_result(id, read(id, ENDING), 'expired', 'expired', 'expired before it could start')
  return { 'stale' }
end
if not repeated and overdue(record) then
  end_overdue(id, read(id, ENDING))
  return { 'stale' }
end

-- 2. Take it, and say where it goes on
if not repeated then take() end
local text, tokens = '', '[]'
if record.bytes or record.tokens then text, tokens = emitted() end
return { 'claimed', record.job, record.seed, tostring(record.attempt), text, tokens,
  record.revision or '', record.checkpoint or '', record.accepted, record.held_ms, record.leased,
  record.first or '', ms(NOW) }
