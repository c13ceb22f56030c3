-- What is promised in a pool, counted from its leases.
--
-- Below the prefix: pool:POOL:leases (read). An entry is "KV_TOKENS MEMORY_BYTES ALONE CLAIMED",
-- CLAIMED being 0 until then, and for ever where no memory is reserved.

-- memory a run took this long ago shows in what its pool measures as free
local MEMORY_UNSEEN_MS = 10000

-- entries are much alike: each is taken apart once
local known = {}
local function take_apart(entry)
  local found = known[entry]
  if not found then
    local kv, memory, alone, claimed = string.match(entry, '^(%d+) (%d+) (%d) (%S+)$')
    local unseen = tonumber(claimed) == 0 or NOW - claimed < MEMORY_UNSEEN_MS
    found = { tonumber(kv), unseen and tonumber(memory) or 0, alone == '1' }
    known[entry] = found
  end
  return found[1], found[2], found[3]
end

local function load_of(pool)
  local entries = call('HVALS', P .. 'pool:' .. pool .. ':leases')
  local load = { count = #entries, kv = 0, memory = 0, alone = false }
  for _, entry in ipairs(entries) do
    local kv, memory, alone = take_apart(entry)
    load.kv = load.kv + kv
    load.memory = load.memory + memory
    load.alone = load.alone or alone
  end
  return load
end
