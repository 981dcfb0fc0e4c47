// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Bounds are the upper bounds of the buckets of a Histogram, each inclusive; a last bucket has
// what is above.
var Bounds = [...]time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second,
	10 * time.Second, 20 * time.Second, 60 * time.Second,
}

// lastBound is the index of the last of Bounds, and of the last bucket that has one.
const lastBound = len(Bounds) - 1

// Histogram counts values by bucket; it is not cumulative.
type Histogram [len(Bounds) + 1]int64

// Add counts a value.
func (h *Histogram) Add(d time.Duration) { h[bucketOf(d)]++ }

func bucketOf(d time.Duration) int {
	for i, bound := range Bounds {
		if d <= bound {
			return i
		}
	}
	return len(Bounds)
}

// total is the number of values.
func (h Histogram) total() (n int64) {
	for _, c := range h {
		n += c
	}
	return n
}

// above is the number of values in buckets after the given one.
func (h Histogram) above(bucket int) (n int64) {
	for _, c := range h[bucket+1:] {
		n += c
	}
	return n
}

// tail is the first bucket with which 95 of 100 values are reached.
func (h Histogram) tail() int {
	sum, total := int64(0), h.total()
	for i, c := range h {
		if sum += c; sum*100 >= total*95 {
			return i
		}
	}
	return len(h) - 1
}

// Quantile is the upper bound of the bucket in which the q-quantile lies; the last bound for what
// is above; 0 without values.
func (h Histogram) Quantile(q float64) time.Duration {
	sum, total := int64(0), h.total()
	if total == 0 {
		return 0
	}
	for i, c := range h[:len(Bounds)] {
		if sum += c; float64(sum) >= q*float64(total) {
			return Bounds[i]
		}
	}
	return Bounds[len(Bounds)-1]
}

// mostRuns is above any true count. What reaches it is not evidence, and would take long to judge.
const mostRuns = 1 << 40

// sum adds two counts, and stays at mostRuns or above if one of them is there.
func sum(a, b int64) int64 { return min(a, mostRuns) + min(b, mostRuns) }

// Counts are of the units of one arm. None ever goes down.
type Counts struct {
	// Runs were put into the arm. A tenant-minute counts when it votes, so Ended is the same.
	Runs int64
	// Ended are those of them that ended; only these vote.
	Ended int64
	// Contended are those of Ended whose lock was busy at least once; of a tenant-minute, that of
	// one of its starts.
	Contended int64
	// Busy are those of Contended whose lock was busy again when it was tried again.
	Busy int64
	// Abandoned, FenceRefused and DeadLettered are those of Runs to which that happened at least
	// once. It counts when it happens, not when the run ends.
	Abandoned, FenceRefused, DeadLettered int64
	// Waits are the longest lock waits of units that ended.
	Waits Histogram
	// Latencies are the longest result latencies of runs that ended and had a result.
	Latencies Histogram
}

// Plus is the sum of two.
func (c Counts) Plus(o Counts) Counts {
	c.Runs, c.Ended = sum(c.Runs, o.Runs), sum(c.Ended, o.Ended)
	c.Contended, c.Busy = sum(c.Contended, o.Contended), sum(c.Busy, o.Busy)
	c.Abandoned, c.FenceRefused = sum(c.Abandoned, o.Abandoned), sum(c.FenceRefused, o.FenceRefused)
	c.DeadLettered = sum(c.DeadLettered, o.DeadLettered)
	for i := range c.Waits {
		c.Waits[i], c.Latencies[i] = sum(c.Waits[i], o.Waits[i]), sum(c.Latencies[i], o.Latencies[i])
	}
	return c
}

// unended are units that began and did not end, as far as was counted. Runs that were deleted are
// among them, as they never end. Those that an operator counted which is gone may be,
// or be missing.
func (c Counts) unended() int64 { return max(0, c.Runs-c.Ended) }

// withoutVote are units that will vote, or did in a process that has not reported it yet, given how
// many did not end, and how many ended lately. Of the latter nobody knows which are counted: so it
// is as many as counts lack.
func (c Counts) withoutVote(there, lately int64) int64 {
	return max(there, min(c.unended(), there+lately))
}

// since is what Contended and Ended grew by.
func (c Counts) since(before Counts) Counts {
	return Counts{Contended: c.Contended - before.Contended, Ended: c.Ended - before.Ended}
}

// reaches says that no count is below that of an earlier reading.
func (c Counts) reaches(before Counts) bool {
	for i := range c.Waits {
		if c.Waits[i] < before.Waits[i] || c.Latencies[i] < before.Latencies[i] {
			return false
		}
	}
	return c.Runs >= before.Runs && c.Ended >= before.Ended && c.Contended >= before.Contended && c.Busy >= before.Busy &&
		c.Abandoned >= before.Abandoned && c.FenceRefused >= before.FenceRefused && c.DeadLettered >= before.DeadLettered
}

// plausible says that counts are in their range, and that none contradicts another that the same
// process counted at the same time. Others may: a run can begin in one process and end in another,
// whose counts are read at other times.
func (c Counts) plausible() bool {
	for i := range c.Waits {
		if c.Waits[i] < 0 || c.Latencies[i] < 0 {
			return false
		}
	}
	return 0 <= c.Busy && c.Busy <= c.Contended && c.Contended <= c.Ended && c.Waits.total() <= c.Ended && c.Latencies.total() <= c.Ended &&
		0 <= min(c.Runs, c.Abandoned, c.FenceRefused, c.DeadLettered) && max(c.Runs, c.Ended, c.Abandoned, c.FenceRefused, c.DeadLettered) < mostRuns
}

// Tally is what was counted for a candidate, over all replicas.
type Tally struct {
	// Canary and Control are the arms.
	Canary, Control Counts
	// Rest is the number of runs that were put into neither.
	Rest int64
}

// UnderWay is how many runs of each arm began and did not end, at one time. Counts do not
// tell that: a run that is deleted before its end began, and never ends. The zero value: it
// is not known.
type UnderWay struct {
	// Known says that the runs were looked at.
	Known bool
	// Canary and Control are the numbers of runs.
	Canary, Control int64
	// EndedCanary and EndedControl are the numbers of runs that ended so lately that the process
	// which has their votes may not have reported them yet, also of those that were deleted since.
	// They are not in Canary and Control.
	EndedCanary, EndedControl int64
}

// Plus is the sum of two.
func (t Tally) Plus(o Tally) Tally {
	return Tally{Canary: t.Canary.Plus(o.Canary), Control: t.Control.Plus(o.Control), Rest: sum(t.Rest, o.Rest)}
}

// right says that the tally can follow on an earlier one.
func (t Tally) right(before Tally) bool {
	return t.Canary.plausible() && t.Control.plausible() && t.Rest >= before.Rest && t.Rest < mostRuns &&
		t.Canary.reaches(before.Canary) && t.Control.reaches(before.Control)
}

// more is how many runs one arm has more than the other, if there is so much evidence that this is
// not chance; else 0.
func more(one, other int64, evidence float64) int64 {
	if logEvidence(one, one+other) < evidence {
		return 0
	}
	return max(0, one-other)
}
