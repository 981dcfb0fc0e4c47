// Package suite is for tests by what it imports.
package suite

import "testing"

// Run is long.
func Run(t *testing.T) {
	t.Log()
	t.Log()
	t.Log()
	t.Log()
	t.Log()
	t.Log()
	t.Log()
	t.Log()
}
