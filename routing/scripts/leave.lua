#!lua flags=allow-oom
-- Forgets a pool that ended in order.
--
-- Below the prefix: pools, pool:POOL:snapshot, pool:POOL:detail, pool:POOL:mark, wake.
--
-- ARGV: pool
-- include base
local key = P .. 'pool:' .. ARGV[1]
call('ZREM', P .. 'pools', ARGV[1])
call('DEL', key .. ':snapshot', key .. ':detail', key .. ':mark')
wake()
return 1
