-- This script shows the minimum cost of a script call.
return 1
