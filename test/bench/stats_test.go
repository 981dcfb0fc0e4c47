// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"gonum.org/v1/plot/plotter"
)

// mutation: an index that is one too high or too low makes this fail.
func TestPercentileIsTheLeastValueThatCoversTheShare(t *testing.T) {
	for name, c := range map[string]struct {
		all  []int
		p    int
		want int
	}{
		"nothing measured":             {nil, 95, 0},
		"one value is every share":     {[]int{7}, 1, 7},
		"the median of an even number": {[]int{4, 1, 3, 2}, 50, 2},
		"95 of a hundred":              {hundred(), 95, 95},
		"all":                          {hundred(), 100, 100},
	} {
		t.Run(name, func(t *testing.T) {
			if got := percentile(c.all, c.p); got != c.want {
				t.Errorf("p%d is %d; want %d", c.p, got, c.want)
			}
		})
	}
}

func hundred() []int {
	all := make([]int, 100)
	for i := range all {
		all[i] = 100 - i
	}
	return all
}

// mutation: leaving out the number of shares makes this fail.
func TestJainIsOneForEqualSharesAndLeastForOneWinner(t *testing.T) {
	for name, c := range map[string]struct {
		shares []float64
		want   float64
	}{
		"equal":             {[]float64{3, 3, 3}, 1},
		"one has all":       {[]float64{5, 0, 0, 0}, 0.25},
		"nobody has a turn": {[]float64{0, 0}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := jain(c.shares); math.Abs(got-c.want) > 1e-9 {
				t.Errorf("index %v; want %v", got, c.want)
			}
		})
	}
}

const exported = `# TYPE wait histogram
wait_bucket{outcome="acquired",le="0.1"} %A
wait_bucket{outcome="acquired",le="0.2"} %B
wait_bucket{outcome="acquired",le="+Inf"} %C
wait_sum{outcome="acquired"} %S
wait_count{outcome="acquired"} %C
wait_bucket{outcome="busy",le="0.1"} 1000
wait_bucket{outcome="busy",le="+Inf"} 1000
wait_sum{outcome="busy"} 1
wait_count{outcome="busy"} 1000
# TYPE requests counter
requests{method="GET",code="200"} 5
requests{method="PUT",code="200"} 2
requests{method="PUT",code="409"} 1
`

func parsed(t *testing.T, values ...string) metrics {
	t.Helper()
	text := strings.NewReplacer("%A", values[0], "%B", values[1], "%C", values[2], "%S", values[3]).Replace(exported)
	families, err := parseMetrics(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return metrics{families}
}

// mutation: not subtracting what was there before, or not looking at labels, makes this fail.
func TestAHistogramOfTheTimeBetweenTwoLooksHasItsOwnQuantiles(t *testing.T) {
	before, after := parsed(t, "100", "100", "100", "1"), parsed(t, "100", "110", "110", "2.5")
	h := between(before, after, "wait", labels{"outcome": "acquired"})
	got := []float64{h.count, h.mean(), h.quantile(0.5), h.quantile(1)}
	if diff := cmp.Diff([]float64{10, 0.15, 0.15, 0.2}, got, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })); diff != "" {
		t.Errorf("count, mean, median and maximum (-want +got):\n%s", diff)
	}
}

func TestWhatIsBeyondTheLastBucketCountsAsItsBound(t *testing.T) {
	h := between(parsed(t, "0", "0", "0", "0"), parsed(t, "0", "0", "4", "9"), "wait", labels{"outcome": "acquired"})
	if got := h.quantile(0.95); got != 0.2 {
		t.Errorf("p95 is %v; want 0.2", got)
	}
}

// mutation: a label that is missing from the metric and counts as a match makes this fail.
func TestASumIsOverTheMetricsThatHaveAllLabels(t *testing.T) {
	m := parsed(t, "0", "0", "0", "0")
	for name, c := range map[string]struct {
		where labels
		want  float64
	}{
		"all":               {nil, 8},
		"one label":         {labels{"method": "PUT"}, 3},
		"two labels":        {labels{"method": "PUT", "code": "409"}, 1},
		"a label not there": {labels{"method": "PUT", "host": ""}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := m.sum("requests", c.where); got != c.want {
				t.Errorf("sum %v; want %v", got, c.want)
			}
		})
	}
	if got := (metrics{map[string]*dto.MetricFamily{}}).sum("requests", nil); got != 0 {
		t.Errorf("a metric that is not there sums up to %v", got)
	}
}

// mutation: another command, lock or policy that counts makes this fail.
func TestAttemptsAreReadFromMonitor(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	var attempts []time.Time
	for line, want := range map[string]bool{
		`+1700000000.010000 [0 127.0.0.1:5] "set" "{adm:gate-3:bench-1}:lock" "TOKEN" "px" "10000" "nx"`: true,
		`+1700000000.120000 [0 127.0.0.1:5] "SET" "{adm:gate-3:bench-1}:lock" "TOKEN" "nx"`:              true,
		`+1700000000.010000 [0 127.0.0.1:5] "get" "{adm:gate-3:bench-1}:lock"`:                           false,
		`+1700000000.010000 [0 127.0.0.1:5] "set" "{adm:gate-30:bench-1}:lock" "TOKEN"`:                  false,
		`+1700000000.010000 [0 lua] "set" "{run:1}:lock" "TOKEN" "px"`:                                   false,
		"+OK": false,
	} {
		at, ok := attemptOf(line+"\r\n", "gate-3")
		if ok != want {
			t.Errorf("%s counts: %v", line, ok)
		}
		if ok {
			attempts = append(attempts, at)
		}
	}
	if diff := cmp.Diff(plotter.XYs{{X: 0, Y: 1}, {X: 0.05, Y: 0}, {X: 0.1, Y: 1}}, binned("x", attempts, begin).points); diff != "" {
		t.Errorf("over time (-want +got):\n%s", diff)
	}
}

func TestTenTimesTheUsualComesAtOnce(t *testing.T) {
	offsets := hotOffsets(4)
	burst := 0
	for _, at := range offsets {
		if at == hotLead {
			burst++
		}
	}
	if burst != 41 || len(offsets) != 60 {
		t.Errorf("%d of %d starts come at once; want 41 of 60", burst, len(offsets))
	}
}

// mutations: leaving out children that are gone, or those of children, or counting others, each
// make this fail.
func TestAFamilysTimeIsThatOfAllItsMembers(t *testing.T) {
	all := map[int]stat{
		1:  {parent: 0, used: time.Hour, gone: time.Hour},
		10: {parent: 1, used: 1 * time.Second, gone: 2 * time.Second},
		11: {parent: 10, used: 4 * time.Second},
		12: {parent: 11, used: 8 * time.Second, gone: 16 * time.Second},
		13: {parent: 1, used: time.Hour},
	}
	if got := familyTime(all, 10); got != 31*time.Second {
		t.Errorf("%s; want 31s", got)
	}
	if got := statOf(os.Getpid()); got.parent != os.Getppid() {
		t.Errorf("the parent of this process is %d; want %d", got.parent, os.Getppid())
	}
}

// mutation: a median that sorts what it is given, or takes the mean, makes this fail.
func TestTheMedianLeavesItsValuesInOrder(t *testing.T) {
	all := []float64{9, 1, 2}
	if got := median(all); got != 2 || all[0] != 9 {
		t.Errorf("median %v of %v", got, all)
	}
}

func TestRunsOfALoadAreKnownByTheirNames(t *testing.T) {
	for run, want := range map[string]bool{"everystep-00012": true, "warm-everystep-00001": false, "everystep": false, "coalesced-00001": false} {
		if got := isOf(run, "everystep"); got != want {
			t.Errorf("%s: %v", run, got)
		}
	}
}

// mutation: another clock makes this fail.
func TestTheExactClockAgreesWithTheKernelsTicks(t *testing.T) {
	for begin := cpuTime(os.Getpid()); cpuTime(os.Getpid()) < begin+5*clockTick; {
		_ = hundred() // work
	}
	exact, err := exactCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if ticks := cpuTime(os.Getpid()); exact < ticks/2 || exact > 2*ticks+10*clockTick {
		t.Errorf("%s by the clock, %s in ticks", exact, ticks)
	}
}
