#!lua flags=allow-oom
-- The Celery links of an ended job are sent: it is kept as long as any other.
--
-- Below the prefix: after:taken, job:ID, result:ID.
--
-- ARGV: id
-- include base
local id = ARGV[1]
if call('ZREM', P .. 'after:taken', id) == 0 then return 0 end
local record = read(id, { 'keep', 'ended' })
if not record.ended then return 0 end
local left = math.max(1, math.ceil(record.keep - since(record.ended) / 1000))
call('HDEL', P .. 'job:' .. id, 'after')
call('EXPIRE', P .. 'job:' .. id, left)
call('EXPIRE', P .. 'result:' .. id, left)
return 1
