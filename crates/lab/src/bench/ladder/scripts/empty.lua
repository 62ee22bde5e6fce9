#!lua
return 0
