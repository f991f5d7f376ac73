-- Whether the call was carried out.
is_done = allowed or op ~= ACQUIRE and op ~= ACQUIRE_UP_TO
