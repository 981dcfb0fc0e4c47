package v1alpha1

// WriterVersion is the version of the format of a run's status that this code knows, and writes as status.minWriterVersion. It grows with
// each change after which code that knows less must not write: it would drop a field that matters, or misread one (ADR 30).
const WriterVersion int32 = 1

// NeedsNewer is the version that an operator has to know to write the run, if this code does not know it; else 0. A run without one
// was written before there were versions.
func (r *WorkflowRun) NeedsNewer() int32 {
	if r == nil || r.Status == nil || r.Status.MinWriterVersion <= WriterVersion {
		return 0
	}
	return r.Status.MinWriterVersion
}

// Unwritten says whether no operator has written the run's status yet: the API server gives it the default of the schema.
func (r *WorkflowRun) Unwritten() bool { return r.Status == nil || r.Status.ObservedGeneration < 0 }
