#!lua flags=no-writes
-- What is promised in every pool that was published lately.
--
-- Below the prefix: pools, pool:POOL:leases (read).
--
-- Answers: a JSON object, pool → [leases, KV tokens, memory bytes, alone]
-- include base
-- include load
local parts = {}
for _, pool in ipairs(call('ZRANGE', P .. 'pools', 0, -1)) do
  local load = load_of(pool)
  if load.count > 0 then
    parts[#parts + 1] = string.format('%s:[%d,%.0f,%.0f,%s]', cjson.encode(pool), load.count,
      load.kv, load.memory, tostring(load.alone))
  end
end
return '{' .. table.concat(parts, ',') .. '}'
