-- An expiry costs a server about as much as a read and a write. So a key from which is taken again and
-- again lives longer than it must, and its expiry is set anew only when that is used up.
--
-- In: does; was_there (whether there was a state to take from); lived_until (until when the key lives as
-- it is; 0 if there is none); lives_until (until when the new state matters); share (which part longer
-- it may live). Out: lives_until (until when the key is to live); kept (whether it does already).
if does == ACQUIRE then
  if lives_until <= lived_until then
    lives_until, kept = lived_until, true
  elseif was_there then
    local longest = lives_until - now
    lives_until = math.min(lives_until + (longest - longest % share) / share, MODULUS)
  end
end
