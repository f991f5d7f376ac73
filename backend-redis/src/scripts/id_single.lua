-- Whether a call of a single charge was carried out: a shadow denies nothing.
is_done = admits and outcome == ALLOWED or admits ~= nil and id:byte(-1) == SHADOW
