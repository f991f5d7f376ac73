-- To set an expiry costs a server about as much as a read and a write. So a key that is charged repeatedly
-- gets a longer life than it needs, and its expiry is set again only when that is used up.
--
-- In: op; was_there (whether there was a state); expires_at_before (until when the key lives as it is; 0 if
-- there is none); expires_at (until when the new state matters); share (the life is longer by 1/share).
-- Out: expires_at (until when the key is to live); keeps_ttl (whether it lives so long already).
if op == ACQUIRE then
  if expires_at <= expires_at_before then
    expires_at, keeps_ttl = expires_at_before, true
  elseif was_there then
    local remaining = expires_at - now
    expires_at = math.min(expires_at + (remaining - remaining % share) / share, MODULUS)
  end
end
