//go:build race

package lifecycle

// The race detector slows the exploration down tenfold; what it can find needs no large space:
// Decide shares nothing.
const raceEnabled = true
