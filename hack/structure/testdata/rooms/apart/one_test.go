package apart

func helper() int { return First() }
