-- The minimum cost of a script call.
return 1
