-- What a hold of a single charge holds and has spent, if it was carried out: a shadow denies nothing.
if admits and outcome == ALLOWED then
  hold = pack('<I7I7', cost, 0)
elseif admits ~= nil and id:byte(ID_REQUEST) == SHADOW then
  hold = pack('<I7I7', NOT_COUNTED, 0)
end
