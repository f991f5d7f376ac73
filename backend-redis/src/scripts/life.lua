-- In: ends, a time. Out: life, the milliseconds until then as text, rounded up, from the start of this
-- one: as the server counts them. Real time must not end what virtual time does not.
if ends > MAX_EXACT then ends = MAX_EXACT end
life = (ends + -ends % 1000 - (now - now % 1000)) / 1000
if life < 1 then life = 1 end
if ARGV[2] and life < LIFE_IN_TESTS then life = LIFE_IN_TESTS end
life = string.format('%d', life)
