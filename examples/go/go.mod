module shop

go 1.19

require dispatchq.example/client v0.1.0

replace dispatchq.example/client => ../../clients/go
