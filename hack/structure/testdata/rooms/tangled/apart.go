package tangled

// Back is called through an interface only, which is what sets it apart.
func (s State) Back() int { return s.Start() }
