#!lua flags=allow-oom
-- Keeps a pool's snapshot for a while, and wakes the pump if it says something new.
--
-- Below the prefix: pools, pool:POOL:snapshot, pool:POOL:detail, pool:POOL:mark, wake.
--
-- ARGV: pool, ms a snapshot lasts, the mark, snapshot as JSON without its time and its closing
--   brace, detail as JSON or ''
-- include base
local pool, keep_ms, mark, snapshot, detail = unpack(ARGV)
local key = P .. 'pool:' .. pool
local PRUNED_MS = 60000
local before = call('GET', key .. ':mark')
call('SET', key .. ':mark', mark, 'PX', keep_ms)
call('SET', key .. ':snapshot', string.format('%s,"published_ms":%.0f}', snapshot, math.floor(NOW)), 'PX',
  keep_ms)
if detail ~= '' then call('SET', key .. ':detail', detail, 'PX', keep_ms) end
call('ZADD', P .. 'pools', ms(NOW), pool)
call('ZREMRANGEBYSCORE', P .. 'pools', '-inf', ms(NOW - PRUNED_MS))
if before ~= mark then wake() end
return 1
