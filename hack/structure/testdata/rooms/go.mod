module example.org/rooms

go 1.26
