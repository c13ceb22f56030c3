-- What is promised in a pool, counted from its leases.
--
-- Below the prefix: pool:POOL:leases (read). An entry is "KV_TOKENS MEMORY_BYTES ALONE CLAIMED".

-- memory a run took this long ago shows in what its pool measures as free
local MEMORY_UNSEEN_MS = 10000

local function load_of(pool)
  local entries = call('HVALS', P .. 'pool:' .. pool .. ':leases')
  local load = { count = #entries, kv = 0, memory = 0, alone = false }
  for _, entry in ipairs(entries) do
    local kv, memory, alone, claimed = string.match(entry, '^(%d+) (%d+) (%d) (%S+)$')
    load.kv = load.kv + kv
    load.alone = load.alone or alone == '1'
    if tonumber(claimed) == 0 or NOW - claimed < MEMORY_UNSEEN_MS then
      load.memory = load.memory + memory
    end
  end
  return load
end
