#!lua flags=allow-oom
-- Makes a model known, or its newer revision.
--
-- Below the prefix: models, pools and pool:POOL:snapshot (read), wake.
--
-- ARGV: model, storage or '', ModelInfo as JSON
-- Answers: 1 registered, 0 a present pool's storage has the model already
-- include base
local model, storage, info = unpack(ARGV)

local function present(other)
  for _, pool in ipairs(call('ZRANGE', P .. 'pools', 0, -1)) do
    local text = call('GET', P .. 'pool:' .. pool .. ':snapshot')
    if text and cjson.decode(text).storage == other then return true end
  end
  return false
end

local before = call('HGET', P .. 'models', model)
if before then
  local known = cjson.decode(before)
  local elsewhere = type(known.storage) == 'string' and known.storage ~= storage
  if elsewhere and known.revision and present(known.storage) then return 0 end
end
call('HSET', P .. 'models', model, info)
if before ~= info then wake() end
return 1
