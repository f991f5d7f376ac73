--- The time to live of a key.

--- @section text
--- Computes the time to live of a key, as the argument PX of a command such as SET.
---
--- Input: ends (the time until which the key must live). Output: ttl, a text: the milliseconds from
--- the start of the current millisecond, rounded up. If a test sets the time (ARGV[2]), ttl is at
--- least MIN_TTL_IN_TESTS, so that no state is lost while virtual time stands still.
if ends > MAX_EXACT then ends = MAX_EXACT end
ttl = (ends + -ends % 1000 - (now - now % 1000)) / 1000
if ttl < 1 then ttl = 1 end
if ARGV[2] and ttl < MIN_TTL_IN_TESTS then ttl = MIN_TTL_IN_TESTS end
ttl = string.format('%d', ttl)

--- @section slack
--- Decides whether an acquire must set the expiry of its key. Setting an expiry costs a server
--- about as much as a read and a write. A key that is charged repeatedly therefore gets a longer
--- life than necessary. The expiry is set again only when the additional life is used up.
---
--- Inputs:
---   op                 the operation
---   was_there          whether the key had a state before
---   expires_at_before  the time until which the key lives now; 0 if there is no key
---   expires_at         the time until which the new state matters
---   share              the additional life is 1/share of the remaining life
---
--- Outputs:
---   expires_at         the time until which the key must live
---   keeps_ttl          whether the key already lives until expires_at
if op == ACQUIRE then
  if expires_at <= expires_at_before then
    expires_at, keeps_ttl = expires_at_before, true
  elseif was_there then
    local remaining = expires_at - now
    expires_at = math.min(expires_at + (remaining - remaining % share) / share, MODULUS)
  end
end
