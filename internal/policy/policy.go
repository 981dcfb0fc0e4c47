// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"strconv"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/shares"
)

// Effective is what governs the runs of a workload class.
type Effective struct {
	// Name is that of the LockPolicy; empty for the built-in defaults.
	Name string
	// Generation is the metadata.generation of the LockPolicy; 0 for the built-in defaults.
	Generation int64
	// RunLock tunes the run lock.
	RunLock RunLock
	// Admission bounds how many runs of a tenant are under way.
	Admission Admission
	// Delivery says what becomes of results that cannot be applied now.
	Delivery Delivery
	// Checkpoint says how far a run may be ahead of its status.
	Checkpoint Checkpoint
	// Untried is the RunLock of the baseline, for a run that has another one and whose arm is not
	// pinned yet; nil: RunLock says all. See Patience.
	Untried *RunLock
}

// Patience is the run lock that tells how long a run waits for its lock until it says so. Until
// that pins the run's arm it is the same in all arms, since who says so begins: with a patience of
// its own, an arm would begin more runs, or fewer.
func (e *Effective) Patience() RunLock {
	if e.Untried != nil {
		return *e.Untried
	}
	return e.RunLock
}

// Checkpoint says when the status of a run is written. The zero value: before each effect.
type Checkpoint struct {
	// Coalesced lets a run be ahead of its status.
	Coalesced bool
	// MaxResults is how many results may be ahead of status.
	MaxResults int
	// MaxDelay is for how long status may lag behind.
	MaxDelay time.Duration
}

// Admission bounds how many runs of a tenant are under way at the same time.
type Admission struct {
	// Reject has the webhook refuse runs at the limit; else they wait.
	Reject bool
	// Lock is that of strategy Lock; nil: Atomic.
	Lock *AdmissionLock
	// Trial is another Lock that is tried on a part of the tenant-minutes; nil: none is. See At.
	Trial *AdmissionTrial

	// Default is the limit of each tenant that has none of its own; NoLimit: there is none.
	Default int
	// Tenants have limits of their own. They are those of the spec: a map of them would be made
	// anew in each pass over a run, which asks for one.
	Tenants []v1alpha1.TenantLimit
	// Total is what all tenants share; nil: they are counted apart.
	Total *v1alpha1.AdmissionTotal
	// Version orders edits of a policy with a total: the highest is the newest.
	Version int64
}

// AdmissionLock tunes the lock of a tenant with strategy Lock.
type AdmissionLock struct {
	// TTL is how long Redis keeps the lock of a holder that went silent.
	TTL time.Duration
	// MaxWait is how long the lock is tried for.
	MaxWait time.Duration
	// Retry is the wait between two tries.
	Retry BusyRetry
}

// NoLimit is what Limit returns where there is none.
const NoLimit = -1

// Limit is how many runs of a tenant may be under way, or NoLimit.
func (a Admission) Limit(tenant string) int {
	limit := a.Default
	for i := range a.Tenants {
		if a.Tenants[i].Name == tenant {
			limit = int(a.Tenants[i].MaxConcurrentRuns)
		}
	}
	if a.Total == nil {
		return limit
	}
	total := int(a.Total.MaxConcurrentRuns)
	if limit < 0 {
		return total
	}
	return min(total, limit)
}

// Shares are the limits of all tenants that share a total; nil: they are counted apart. They are
// made anew each time, with a map of all tenants.
func (a Admission) Shares() *shares.Limits {
	if a.Total == nil {
		return nil
	}
	l := &shares.Limits{
		Version: a.Version, Total: int(a.Total.MaxConcurrentRuns), Max: a.Default, Tenants: make(map[string]shares.Share, len(a.Tenants)),
	}
	for _, t := range a.Tenants {
		l.Tenants[t.Name] = shares.Share{Max: int(t.MaxConcurrentRuns), Guaranteed: int(t.Guaranteed), Weight: max(1, int(t.Weight))}
	}
	return l
}

// Delivery bounds how results are delivered again.
type Delivery struct {
	// MaxDeliveries is the number of failed deliveries with which a result is put aside as
	// a dead letter.
	MaxDeliveries int
	// MaxDelay caps the waits that workers ask for, and those before a delivery that
	// failed is repeated.
	MaxDelay time.Duration
}

// RunLock tunes run locks. Values can be compared with ==; internal/lockmgr does, to notice
// a changed policy.
type RunLock struct {
	// TTL is how long Redis keeps the lock of a holder that went silent.
	TTL time.Duration
	// ForRun says that a run keeps its lock from admission to its end.
	ForRun bool
	// Linger is how long a lease is kept after its last use; 0 releases it at once.
	Linger time.Duration
	// Wait says how a busy lock is waited for.
	Wait Wait
	// BusyRetry is the wait before a busy lock is tried again.
	BusyRetry BusyRetry
	// Renewal says how a held lock is kept.
	Renewal Renewal
}

// Validity is how long a lease may be worked under, counted from before the call that took or
// renewed it was sent.
func (l RunLock) Validity() time.Duration { return l.TTL - l.Renewal.Margin }

// Wait says how a busy lock is waited for.
type Wait struct {
	// Poll means to try again after BusyRetry; else the waiters queue and the lock is handed
	// to the first.
	Poll bool
	// Budget is how long a result waits before it goes back to NATS, and a place in line is kept
	// for who does not ask again.
	Budget time.Duration
}

// BusyRetry is the wait before a busy lock is tried again.
type BusyRetry struct {
	// Fixed means exactly Delay.
	Fixed bool
	// Delay is the base wait.
	Delay time.Duration
	// JitterPercent is p, in percent of Delay.
	JitterPercent int64
}

// Wait is how long to wait, for r uniform in [0,1): uniform in [Delay*(1-p), Delay*(1+p)] and never
// below 0; Fixed: Delay.
func (b BusyRetry) Wait(r float64) time.Duration {
	if b.Fixed {
		return b.Delay
	}
	spread := float64(b.Delay) * float64(b.JitterPercent) / 100
	return max(0, b.Delay+time.Duration((2*r-1)*spread))
}

// String is the range of the wait in milliseconds, as "350-650ms"; "500ms" when it has no range.
func (b BusyRetry) String() string {
	if b.Fixed || b.JitterPercent == 0 {
		return share(b.Delay, 100) + "ms"
	}
	return share(b.Delay, max(0, 100-b.JitterPercent)) + "-" + share(b.Delay, 100+b.JitterPercent) + "ms"
}

// share is percent of d in milliseconds, without trailing zeros.
func share(d time.Duration, percent int64) string {
	return strconv.FormatFloat(float64(d.Milliseconds()*percent)/100, 'f', -1, 64)
}

// Renewal says how a held lock is kept, and when it counts as lost.
type Renewal struct {
	// Interval is the time between the sending of two renewals.
	Interval time.Duration
	// Timeout bounds one call to Redis.
	Timeout time.Duration
	// MaxConsecutiveFailures is the number of renewals failed in a row with which the lease
	// is given up.
	MaxConsecutiveFailures int
	// Continue means to go on with a lock once held while it cannot be renewed; else
	// the work stops.
	Continue bool
	// Margin is what a lease ends before Redis frees its key: TTL * clock drift + safety margin.
	Margin time.Duration
}

// Defaults is what governs a class without any policy: the defaults of the CRD.
func Defaults() Effective {
	return Effective{
		RunLock: runLock(v1alpha1.RunLockPolicy{}), Admission: admission(v1alpha1.AdmissionPolicy{}), Delivery: delivery(v1alpha1.DeliveryPolicy{}),
	}
}

// Of is what a policy says, with the CRD's default for whatever is absent. nil: Defaults.
func Of(p *v1alpha1.LockPolicy) Effective {
	if p == nil {
		return Defaults()
	}
	return Effective{
		Name: p.Name, Generation: p.Generation, RunLock: runLock(p.Spec.RunLock), Admission: admissionOf(p),
		Delivery: delivery(p.Spec.Delivery), Checkpoint: checkpoint(p.Spec.Checkpoint),
	}
}

func checkpoint(p v1alpha1.CheckpointPolicy) Checkpoint {
	if p.Mode != v1alpha1.CheckpointCoalesced {
		return Checkpoint{}
	}
	return Checkpoint{
		Coalesced: true, MaxResults: int(orDefault(p.MaxResults, 64)), MaxDelay: millis(int64(orDefault(p.MaxDelayMillis, 200))),
	}
}

func admissionOf(p *v1alpha1.LockPolicy) Admission {
	a := admission(p.Spec.Admission)
	if a.Total != nil {
		a.Version = versionOf(p)
	}
	return a
}

// generations is how many edits of one policy versionOf tells apart.
const generations = 1 << 20

// versionOf orders the edits of a policy, also if it was deleted and made anew with its name.
func versionOf(p *v1alpha1.LockPolicy) int64 {
	return max(0, p.CreationTimestamp.Unix())*generations + min(p.Generation, generations-1)
}

func admission(p v1alpha1.AdmissionPolicy) Admission {
	a := Admission{Reject: p.OnLimit == v1alpha1.OnLimitReject, Default: NoLimit, Tenants: p.Tenants, Total: p.Total}
	if p.MaxConcurrentRuns != nil {
		a.Default = int(*p.MaxConcurrentRuns)
	}
	a.Lock = admissionLock(v1alpha1.RolloutAdmission{Strategy: p.Strategy, Lock: p.Lock})
	return a
}

// admissionLock is the lock of strategy Lock; nil: Atomic.
func admissionLock(p v1alpha1.RolloutAdmission) *AdmissionLock {
	if p.Strategy != v1alpha1.AdmissionStrategyLock {
		return nil
	}
	return &AdmissionLock{
		TTL:     time.Duration(orDefault(p.Lock.TTLSeconds, 10)) * time.Second,
		MaxWait: millis(orDefaultPtr(p.Lock.MaxWaitMillis, 2000)),
		Retry: BusyRetry{
			Fixed:         p.Lock.Retry.Mode == v1alpha1.JitterModeFixed,
			Delay:         millis(orDefault(p.Lock.Retry.DelayMillis, 10)),
			JitterPercent: orDefaultPtr(p.Lock.Retry.JitterPercent, 30),
		},
	}
}

func delivery(p v1alpha1.DeliveryPolicy) Delivery {
	return Delivery{
		MaxDeliveries: int(orDefault(p.MaxDeliveries, 100)),
		MaxDelay:      time.Duration(orDefault(p.MaxDelaySeconds, 30)) * time.Second,
	}
}

func runLock(p v1alpha1.RunLockPolicy) RunLock {
	ttlSeconds := orDefault(p.TTLSeconds, 30)
	return RunLock{
		TTL:    time.Duration(ttlSeconds) * time.Second,
		ForRun: p.Scope == v1alpha1.LockScopeRun,
		Linger: millis(orDefaultPtr(p.LingerMillis, 250)),
		Wait:   Wait{Poll: p.Wait.Mode == v1alpha1.WaitModePoll, Budget: millis(orDefaultPtr(p.Wait.BudgetMillis, 3000))},
		BusyRetry: BusyRetry{
			Fixed:         p.BusyRetry.Mode == v1alpha1.JitterModeFixed,
			Delay:         millis(orDefault(p.BusyRetry.DelayMillis, 500)),
			JitterPercent: orDefaultPtr(p.BusyRetry.JitterPercent, 30),
		},
		Renewal: renewal(p.Renewal, ttlSeconds),
	}
}

func renewal(p v1alpha1.RenewalPolicy, ttlSeconds int64) Renewal {
	// Whole milliseconds, rounded as the CRD's rule rounds them: what the API server checked is
	// what is used.
	drift := ttlSeconds * 10 * orDefaultPtr(p.ClockDriftPercent, 1)
	return Renewal{
		Interval:               millis(orDefaultPtr(p.IntervalMillis, ttlSeconds*1000/3)),
		Timeout:                millis(orDefault(p.TimeoutMillis, 1000)),
		MaxConsecutiveFailures: int(orDefault(p.MaxConsecutiveFailures, 3)),
		Continue:               p.OnFailure == v1alpha1.RenewalFailureContinue,
		Margin:                 millis(drift + orDefaultPtr(p.SafetyMarginMillis, 3000)),
	}
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func minutes(n int32) time.Duration { return time.Duration(n) * time.Minute }

// orDefault is for fields whose minimum is above 0, so that 0 can only mean absent.
func orDefault[T int32 | int64](value, fallback T) T {
	if value == 0 {
		return fallback
	}
	return value
}

func orDefaultPtr(value *int64, fallback int64) int64 {
	if value == nil {
		return fallback
	}
	return *value
}
