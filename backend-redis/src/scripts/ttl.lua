-- Time to live of a key. In: ends, a time. Out: ttl, the milliseconds until then as text, rounded up; from
-- the start of the current millisecond, as the server counts. With the time of a test (ARGV[2]) it is at
-- least MIN_TTL_IN_TESTS: real time must not expire a state that virtual time keeps.
if ends > MAX_EXACT then ends = MAX_EXACT end
ttl = (ends + -ends % 1000 - (now - now % 1000)) / 1000
if ttl < 1 then ttl = 1 end
if ARGV[2] and ttl < MIN_TTL_IN_TESTS then ttl = MIN_TTL_IN_TESTS end
ttl = string.format('%d', ttl)
