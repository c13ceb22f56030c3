#!lua flags=allow-oom
-- Gives up the right to decide.
--
-- Below the prefix: pump, wake.
--
-- ARGV: the role
-- include base
if call('GET', P .. 'pump') ~= ARGV[1] then return 0 end
call('DEL', P .. 'pump')
wake()
return 1
