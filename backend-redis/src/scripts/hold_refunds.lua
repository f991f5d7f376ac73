-- Where states have holds, ARGV[2] has behind the costs for each charge whether its policy gives back what has lapsed (a
-- byte).
local refunds = (#id - ID_REQUEST - 7) / 8
refunds, id = id:sub(-refunds), id:sub(1, -refunds - 1)
