#!lua flags=allow-oom
-- Ends a job with what its engine gave.
--
-- Keys: those of base.lua and ending.lua, and below the prefix runs.
--
-- ARGV: id, token, final state, the result as JSON without its times and its closing brace, its
--   times without the closing brace, Celery's status, Celery's value as JSON or '' for the
--   result, bytes and tokens of the result's text or '', then what the stream may lack: bytes
--   and tokens before it, text, number of tokens, tokens as JSON; then why it failed or ''.
-- Answers: stale | done | short, bytes, tokens (the stream lacks text: call again with it)
-- include base
-- include ending
local id, token, state, head, own, status, value = unpack(ARGV, 1, 7)
local bytes, tokens = ARGV[8], ARGV[9]
local tail = { bytes = ARGV[10], tokens = ARGV[11], text = ARGV[12], count = tonumber(ARGV[13]),
  list = ARGV[14] }
local record = read(id, { 'bytes', 'tokens', 'leased', 'facts', unpack(ENDING) })
local RUNS_KEPT = 512

-- 1. Only the holder of the lease ends the job; a repeat after a lost answer is told the same
local running = record.state == 'running' or record.state == 'cancelling'
if not running or record.token ~= token then
  return { record.spent == 'finish:' .. token and 'done' or 'stale' }
end

-- 2. Whoever reads the stream gets the same text as whoever reads the result
if bytes ~= '' then
  local has_bytes, has_tokens = tonumber(record.bytes) or 0, tonumber(record.tokens) or 0
  if has_bytes < tonumber(bytes) or has_tokens < tonumber(tokens) then
    if tonumber(tail.bytes) ~= has_bytes or tonumber(tail.tokens) ~= has_tokens then
      return { 'short', tostring(has_bytes), tostring(has_tokens) }
    end
    local entry = {}
    if tail.text ~= '' then entry = { 't', tail.text } end
    if tail.count > 0 then
      entry[#entry + 1] = 'k'
      entry[#entry + 1] = tail.list
    end
    call('XADD', P .. 'stream:' .. id, '*', unpack(entry))
    call('HSET', P .. 'job:' .. id, 'bytes', bytes, 'tokens', tokens)
    record.first = record.first or NOW
  end
end

-- 3. The router learns from what it took
if state == 'done' and record.leased then
  call('LPUSH', P .. 'runs', string.format('[%s,%s,%s,%s,%s]', record.facts, record.leased,
    record.first or 'null', ms(NOW), tokens ~= '' and tokens or '0'))
  call('LTRIM', P .. 'runs', 0, RUNS_KEPT - 1)
end

-- 4. End it
local result = head .. ',"times":' .. times(record, own, tonumber(record.first)) .. '}'
call('HSET', P .. 'job:' .. id, 'spent', 'finish:' .. token)
if ARGV[15] ~= '' then call('HSET', P .. 'job:' .. id, 'why', ARGV[15]) end
end_record(id, record, state, result,
  celery_entry(id, record, status, value == '' and result or value))
return { 'done' }
