-- To set an expiry costs a server about as much as a read and a write. What is given back makes no state matter for longer,
-- so its key lives long enough.
keeps_ttl = keeps_ttl or change == UNDO
