package lifecycle

// newer is the version that this core lacks to decide about a run, or to read what its parent says of it; 0: it lacks none.
func (in *Input) newer() int32 {
	if in.Parent == nil {
		return in.Run.NeedsNewer()
	}
	return max(in.Run.NeedsNewer(), in.Parent.NeedsNewer)
}

// decideNewer leaves a run alone: whatever this core made of its status could be wrong, and a write would drop what it does not know.
func decideNewer(in Input) Decision {
	return Decision{Status: stored(in.Run), Verdicts: verdicts(in.Results, Waiting), NeedsNewer: in.newer()}
}
