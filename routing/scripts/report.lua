#!lua flags=allow-oom
-- What a pool's runs did in one engine step: checks tokens, appends to streams, renews leases.
--
-- Below the prefix, for each run: job:ID, stream:ID, leases; of a run whose text Redis lost also
-- held, held:SET, pool:POOL:leases, wake.
--
-- ARGV: pool, ms a lease lasts, then for each run 12 values: id, token, bytes and tokens emitted
--   before this report or '', text, number of tokens, tokens as JSON, revision or '', step or '',
--   goal or '', loss or '', tokens per second or ''.
-- Answers: one character a run: g go on, p pause, f pause and free memory, c cancelled, d past its
--   deadline, l lost
-- include base
local pool, lease_ms = ARGV[1], tonumber(ARGV[2])

-- What of the run's text the stream has not: a report may come again after a lost answer, alone
-- or with newer text behind it. False where the stream has less than the run believes.
local function fresh(record, run)
  if run.bytes == '' then return true end
  local bytes, tokens = record.bytes - run.bytes, record.tokens - run.tokens
  if bytes == 0 and tokens == 0 then return true end
  if bytes < 0 or tokens < 0 or bytes > #run.text or tokens > run.count then return false end
  run.text = string.sub(run.text, bytes + 1)
  local rest = cjson.decode(run.list)
  run.list = '[' .. table.concat(rest, ',', tokens + 1) .. ']'
  run.count = run.count - tokens
  return true
end

local function entry_of(run)
  local entry = {}
  if run.text ~= '' then entry = { 't', run.text } end
  local function add(name, value)
    entry[#entry + 1] = name
    entry[#entry + 1] = value
  end
  if run.count > 0 then add('k', run.list) end
  if run.step ~= '' then
    add('s', run.step)
    if run.goal ~= '' then add('g', run.goal) end
    if run.loss ~= '' then add('l', run.loss) end
    if run.speed ~= '' then add('v', run.speed) end
  end
  return entry
end

local function keep(key, id, record, run)
  local entry = entry_of(run)
  if #entry == 0 then return end
  call('XADD', P .. 'stream:' .. id, 'MAXLEN', '~', record.stream_max, '*', unpack(entry))
  local new = {}
  local function set(name, value)
    new[#new + 1] = name
    new[#new + 1] = value
  end
  if run.text ~= '' or run.count > 0 then
    set('bytes', record.bytes + #run.text)
    set('tokens', record.tokens + run.count)
    set('moved', '1')
    if not record.first then set('first', ms(NOW)) end
  end
  if run.step ~= '' then
    -- steps that a crash undid are no progress the second time
    if tonumber(run.step) > (tonumber(record.best) or 0) then
      set('best', run.step)
      set('moved', '1')
    end
    set('step', run.step)
    if run.loss ~= '' then set('loss', run.loss) end
  end
  if run.revision ~= '' and run.revision ~= record.revision then set('revision', run.revision) end
  call('HSET', key, unpack(new))
end

local answers = {}
for i = 3, #ARGV, 12 do
  local id = ARGV[i]
  local key = P .. 'job:' .. id
  local run = { token = ARGV[i + 1], bytes = ARGV[i + 2], tokens = ARGV[i + 3],
    text = ARGV[i + 4], count = tonumber(ARGV[i + 5]), list = ARGV[i + 6],
    revision = ARGV[i + 7], step = ARGV[i + 8], goal = ARGV[i + 9], loss = ARGV[i + 10],
    speed = ARGV[i + 11] }
  local record = read(id, { 'state', 'token', 'pool', 'bytes', 'tokens', 'stream_max', 'first', 'best',
    'revision', 'leave', 'accepted', 'deadline_s' })
  record.bytes = tonumber(record.bytes) or 0
  record.tokens = tonumber(record.tokens) or 0
  local answer = 'l'
  local running = record.state == 'running' or record.state == 'cancelling'
  if running and record.token == run.token and record.pool == pool then
    if fresh(record, run) then
      keep(key, id, record, run)
      call('ZADD', P .. 'leases', ms(NOW + lease_ms), id)
      local stays = record.leave and (record.leave == 'free' and 'f' or 'p') or 'g'
      answer = overdue(record) and 'd' or stays
      if record.state == 'cancelling' then answer = 'c' end
    else
      -- Redis came back without the last text: the next attempt goes on behind what is there
      hold_again(id, read(id, { 'set', 'order', 'pool' }))
    end
  end
  answers[#answers + 1] = answer
end
return table.concat(answers)
