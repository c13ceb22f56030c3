-- What a crash of its engine means for a job that was running in it.
--
-- Below the prefix: pool:POOL:shared (read), and what base.lua and ending.lua name.
local CRASHING = { 'moved', 'claimed', 'crashes', 'falls', 'lone_falls', unpack(ENDING) }
-- a job that gets a little further each time must not crash engines for ever either
local LONE_FALLS_LIMIT = 10
local SHARED_FALLS_FREE = 1

local function was_shared(record)
  local moment = tonumber(call('GET', P .. 'pool:' .. record.pool .. ':shared'))
  return moment ~= nil and moment >= tonumber(record.claimed)
end

-- Whose crash it was cannot be known while runs share an engine: those that had got nowhere run
-- alone the next time, and only what crashes alone counts. Returns the job's new state.
local function crashed(id, record, limit)
  local key = P .. 'job:' .. id
  if record.state == 'cancelling' then
    end_without_result(id, record, 'cancelled', 'cancelled', 'cancelled while it ran')
    return 'cancelled'
  end
  if was_shared(record) then
    local falls = call('HINCRBY', key, 'falls', 1)
    if not record.moved or falls > SHARED_FALLS_FREE then call('HSET', key, 'alone', '1') end
  else
    local falls = call('HINCRBY', key, 'lone_falls', 1)
    local crashes = tonumber(record.crashes) or 0
    if not record.moved then crashes = call('HINCRBY', key, 'crashes', 1) end
    call('HSET', key, 'alone', '1')
    if crashes >= tonumber(limit) or falls >= LONE_FALLS_LIMIT then
      local message = string.format('its engine crashed %d times while it ran there alone,'
        .. ' the last time in pool %s: its log says why', math.max(crashes, falls), record.pool)
      end_without_result(id, record, 'failed', 'crashed', message)
      return 'failed'
    end
  end
  hold_again(id, record)
  return 'held'
end
