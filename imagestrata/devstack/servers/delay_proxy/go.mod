module imagestrata/delayproxy

go 1.25
