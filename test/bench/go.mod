module github.com/syncopate-dev/syncopate/test/bench

go 1.26.0

replace github.com/syncopate-dev/syncopate => ../..
