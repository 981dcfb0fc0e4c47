package apart

// Second is called.
func Second() int { return 2 }
