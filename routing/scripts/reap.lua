#!lua flags=allow-oom
-- Holds again what lost its lease.
--
-- Below the prefix: pump and pools (read), reaped, leases, alive, pool:POOL:leases, and for each
-- job what crash.lua names.
--
-- ARGV: the role, ms a lease lasts, crashes that end a job
-- Answers: the ids that are held again
-- include base
-- include ending
-- include crash
local role, lease_ms, limit = unpack(ARGV)
local AT_ONCE = 500
if call('GET', P .. 'pump') ~= role then return {} end

-- a record that vanished (an eviction, a hand at work) must not keep its slot for ever
local function forget(id)
  call('ZREM', P .. 'leases', id)
  call('ZREM', P .. 'alive', id)
  for _, pool in ipairs(call('ZRANGE', P .. 'pools', 0, -1)) do
    call('HDEL', P .. 'pool:' .. pool .. ':leases', id)
  end
end

-- 1. Was Redis away, or its clock set back? Then no pool could renew, and none is to blame
local run = string.match(call('INFO', 'server'), 'run_id:(%w+)')
local last = call('HMGET', P .. 'reaped', 'at', 'run')
call('HSET', P .. 'reaped', 'at', ms(NOW), 'run', run)
local gap = NOW - (tonumber(last[1]) or 0)
if gap < 0 or gap > lease_ms / 2 or last[2] ~= run then
  for _, id in ipairs(call('ZRANGE', P .. 'leases', 0, -1)) do
    call('ZADD', P .. 'leases', ms(NOW + lease_ms), id)
  end
  return {}
end

-- 2. What a pool had claimed it has lost by a crash; what it had not claimed is held as before
local again = {}
for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'leases', '-inf', ms(NOW), 'LIMIT', 0, AT_ONCE)) do
  local record = read(id, CRASHING)
  local state = 'held'
  if record.state == 'leased' then
    hold_again(id, record)
  elseif record.state == 'running' or record.state == 'cancelling' then
    state = crashed(id, record, limit)
  else
    forget(id)
    state = 'gone'
  end
  if state == 'held' then again[#again + 1] = id end
end
return again
