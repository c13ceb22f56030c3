#!lua flags=allow-oom
-- Forgets a model that was removed from the storage it was known to lie on.
--
-- Below the prefix: models, wake.
--
-- ARGV: model, storage
-- Answers: 1 forgotten, 0 not known, planned only, or known on another storage
-- include base
local model, storage = unpack(ARGV)
local text = call('HGET', P .. 'models', model)
if not text then return 0 end
local known = cjson.decode(text)
if known.storage ~= storage or known.planned then return 0 end
call('HDEL', P .. 'models', model)
wake()
return 1
