module cambium.example/ledger

go 1.21
