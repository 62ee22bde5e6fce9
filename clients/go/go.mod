module dispatchq.example/client

go 1.19
