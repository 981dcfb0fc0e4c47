// SPDX-License-Identifier: Apache-2.0

package audit

// Kind is a kind of difference between the stores. The list is fixed: docs/audit.md has a section
// for each, and the label kind of the metric has these values only.
type Kind string

// The kinds. Missing: a run says that it has something, and the store does not have it. Left: the
// store has something of a run that does not need it any more.
const (
	SlotMissing   Kind = "SlotMissing"
	SlotLeft      Kind = "SlotLeft"
	PlaceLeft     Kind = "PlaceLeft"
	KeyLeft       Kind = "KeyLeft"
	HoldMissing   Kind = "HoldMissing"
	HoldLeft      Kind = "HoldLeft"
	WaiterLeft    Kind = "WaiterLeft"
	RunLockLeft   Kind = "RunLockLeft"
	RunLockStale  Kind = "RunLockStale"
	JobMissing    Kind = "JobMissing"
	JobLeft       Kind = "JobLeft"
	ResultLeft    Kind = "ResultLeft"
	OutputMissing Kind = "OutputMissing"
	OutputLeft    Kind = "OutputLeft"
)

// About says what people have to know of a kind.
type About struct {
	// Arises is how such a difference comes to be.
	Arises string `json:"arises"`
	// Heals says by when it is gone without anybody's help; "": it stays.
	Heals string `json:"heals,omitempty"`
	// Mends is what makes it go.
	Mends string `json:"mends"`
	// Safe: --repair does that. It takes nothing from a run that may still need it.
	Safe bool `json:"safe"`
}

// Advice is what people are told to do.
func (a About) Advice() string {
	if a.Safe {
		return "--repair: " + a.Mends
	}
	return a.Mends
}

// Kinds are all kinds, in the order in which they are told.
func Kinds() []Kind {
	return []Kind{
		SlotMissing, SlotLeft, PlaceLeft, KeyLeft, HoldMissing, HoldLeft, WaiterLeft, RunLockLeft, RunLockStale,
		JobMissing, JobLeft, ResultLeft, OutputMissing, OutputLeft,
	}
}

// Needs are the parts that have to be read before anything can be said of the kind.
func (k Kind) Needs() []Part {
	switch k {
	case SlotMissing, SlotLeft, PlaceLeft, KeyLeft:
		return []Part{Runs, Slots}
	case HoldMissing, HoldLeft, WaiterLeft:
		return []Part{Runs, Locks}
	case RunLockLeft, RunLockStale:
		return []Part{Runs, RunLocks}
	case JobMissing:
		return []Part{Runs, Jobs, Results}
	case JobLeft:
		return []Part{Runs, Jobs}
	case ResultLeft:
		return []Part{Runs, Results}
	case OutputMissing, OutputLeft:
		return []Part{Runs, Outputs}
	}
	return nil
}

const (
	byResync = "within 30 s, by the operator's comparison of slots and locks with the runs"
	byTwo    = "within 30 s, or a minute where the run was deleted, by the operator's comparison of slots and locks with the runs"
	byGC     = "within 10 min, by the operator's round over what runs left in NATS"
)

// About is what there is to know of the kind.
func (k Kind) About() About { return abouts()[k] }

func abouts() map[Kind]About {
	return map[Kind]About{
		SlotMissing: {
			Arises: "keys in Redis were deleted one by one, or an older copy of Redis' data came back", Heals: byResync,
			Mends: "the slot is entered again", Safe: true,
		},
		SlotLeft: {
			Arises: "the operator died between the end of a run and giving back its slot, or the run was deleted while no operator ran", Heals: byTwo,
			Mends: "the slot is taken back", Safe: true,
		},
		PlaceLeft: {
			Arises: "a run was deleted while it waited, and no operator ran", Heals: byTwo, Mends: "the place is taken back", Safe: true,
		},
		KeyLeft: {
			Arises: "a run with an idempotency key was deleted while no operator ran", Heals: byTwo, Mends: "the key is given up", Safe: true,
		},
		HoldMissing: {
			Arises: "keys in Redis were deleted one by one, or an older copy of Redis' data came back", Heals: byResync,
			Mends: "the hold is entered again, with its fence", Safe: true,
		},
		HoldLeft: {
			Arises: "the operator died between the end of a run or step and giving back its locks", Heals: byTwo, Mends: "the hold is dropped", Safe: true,
		},
		WaiterLeft: {
			Arises: "a run was deleted while it waited for a lock, and no operator ran", Heals: byTwo, Mends: "the place is dropped", Safe: true,
		},
		RunLockLeft: {
			Arises: "a replica died with the lock of a run that then ended by its deadline or a cancel, or was deleted; a lock without an end was written by hand",
			Heals:  "when its TTL ends; never, if it has none", Mends: "the lock is released by its token", Safe: true,
		},
		RunLockStale: {
			Arises: "Redis came back with older data, and a holder of before it still renews a lock whose fence the API server refuses",
			Heals:  "at the holder's next status write, which is refused", Mends: "the lock is released by its token", Safe: true,
		},
		JobMissing: {
			Arises: "NATS lost data that it had confirmed, and nobody noticed; somebody purged the stream; or a job cannot be published, for another reason than want of room",
			Heals:  "within 15 min, by the run's own look for its jobs: the job is published once more; at once when a loss of the stream is noticed",
			Mends:  "none is needed; if it stays, a worker acknowledges what it does not answer, or the operator's log says why the job cannot be published",
		},
		JobLeft: {
			Arises: "the operator died between the end of an attempt and taking back its job, or the run was deleted while no operator ran", Heals: byGC,
			Mends: "the job is taken out of the stream", Safe: true,
		},
		ResultLeft: {
			Arises: "results are not taken: a partition has no owner, its consumer is gone, or the operator cannot settle them",
			Heals:  "when the owner of the partition takes results again", Mends: "kubectl syncopate check says why: SYN112, SYN125",
		},
		OutputMissing: {
			Arises: "the object store lost data, or somebody deleted the object", Heals: "",
			Mends: "the step has to be done again: submit the run again",
		},
		OutputLeft: {
			Arises: "a worker stored the output of a run that was deleted meanwhile, or the operator died before it dropped it", Heals: byGC,
			Mends: "the object is dropped", Safe: true,
		},
	}
}
