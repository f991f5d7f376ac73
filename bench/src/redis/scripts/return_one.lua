-- What calling any script costs.
return 1
