#!lua flags=no-writes
-- What runs in some pools, with all that must be known to take a slot back.
--
-- Below the prefix: pool:POOL:leases, job:ID (read).
--
-- ARGV: the pools
-- Answers: a JSON array of [facts, pool, token, claimed or null, KV tokens, memory bytes, progress,
--   goal or null, preemptions in a row, asked to leave]
-- include base
local found = {}
for _, pool in ipairs(ARGV) do
  local leases = call('HGETALL', P .. 'pool:' .. pool .. ':leases')
  for i = 1, #leases, 2 do
    local record = read(leases[i], { 'facts', 'state', 'token', 'pool', 'claimed', 'tokens', 'step',
      'goal', 'row', 'leave' })
    local kv, memory = string.match(leases[i + 1], '^(%d+) (%d+) ')
    local going = record.state == 'leased' or record.state == 'running'
      or record.state == 'cancelling'
    if going and record.pool == pool then
      local claimed = record.state ~= 'leased' and record.claimed
      local leaving = record.leave or record.state == 'cancelling'
      found[#found + 1] = string.format('[%s,%s,%s,%s,%s,%s,%s,%s,%s,%s]', record.facts,
        cjson.encode(pool), cjson.encode(record.token), claimed or 'null', kv, memory,
        record.step or record.tokens or '0', record.goal or 'null', record.row or '0',
        tostring(leaving and true or false))
    end
  end
end
return '[' .. table.concat(found, ',') .. ']'
