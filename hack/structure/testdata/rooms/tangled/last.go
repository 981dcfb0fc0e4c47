package tangled

func (s *State) last() int {
	if s.list.Get() > 0 {
		return s.caller.Back()
	}
	return s.value.X
}
