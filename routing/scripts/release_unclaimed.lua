#!lua flags=allow-oom
-- Returns the leases of a pool that it has not claimed.
--
-- Below the prefix: pool:POOL:leases, and for each of them job:ID, held, held:SET, leases, wake.
--
-- ARGV: pool
-- Answers: the ids that are held again
-- include base
local pool = ARGV[1]
local freed = {}
for _, id in ipairs(call('HKEYS', P .. 'pool:' .. pool .. ':leases')) do
  local record = read(id, { 'state', 'set', 'order', 'pool' })
  if record.state == 'leased' and record.pool == pool then
    hold_again(id, record)
    freed[#freed + 1] = id
  end
end
return freed
