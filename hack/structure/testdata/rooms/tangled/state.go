// Package tangled has one type whose methods call each other across files.
package tangled

// Config is embedded.
type Config struct{ A, B int }

// Memory is held by pointer, and points back.
type Memory struct {
	owner *State
	notes []string
}

// Value is held by value and not embedded: its fields do not count.
type Value struct{ X, Y, Z int }

// Caller is what State needs.
type Caller interface{ Back() int }

// State reaches its own five fields, two of Config and two of Memory.
type State struct {
	Config
	memory *Memory
	value  Value
	caller Caller
	list   *Generic[int]
}

// Generic is held by pointer too: one more field.
type Generic[T any] struct{ t T }

// Get counts for Generic.
func (g *Generic[T]) Get() T { return g.t }

// Start begins a way through three files.
func (s *State) Start() int { return s.middle() }
