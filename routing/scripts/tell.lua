#!lua flags=allow-oom
-- Keeps what the deciding router learned, and when a refused producer may try again.
--
-- Below the prefix: router, retry.
--
-- ARGV: RouterDetail as JSON, seconds, ms in which both are believed
-- include base
local detail, retry, keep_ms = unpack(ARGV)
call('SET', P .. 'router', detail, 'PX', keep_ms)
call('SET', P .. 'retry', retry, 'PX', keep_ms)
return 1
