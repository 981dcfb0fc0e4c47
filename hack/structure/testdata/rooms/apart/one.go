// Package apart has files that call in one direction.
package apart

// First calls down.
func First() int {
	return Second()
}
