// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/syncopate-dev/syncopate/internal/devenv"
)

const (
	// contentionLimit bounds one case; who has not had the lock by then is left out, and a
	// note says so.
	contentionLimit = 90 * time.Second
	// longHold is how long a contender has the lock where the way of the lock is to count for less.
	longHold = 20 * time.Millisecond
	// waveTime is how much of the beginning the picture of attempts shows, in bins of waveBin.
	waveTime = 4 * time.Second
	waveBin  = 20 * time.Millisecond
	// drainTime is how much the picture of turns shows.
	drainTime = 10 * time.Second
)

// contest is a number of contenders that each need the same lock once.
type contest struct {
	contenders, processes int
	hold                  time.Duration
}

func (c contest) String() string {
	return fmt.Sprintf("%d contenders, %d processes, %s", c.contenders, c.processes, c.hold)
}

// mostOfIdeal is the goal of hand-off. A process with contenders of its own hands the lock on among
// them without Redis; with one contender each, every turn goes through Redis.
func (c contest) mostOfIdeal() float64 {
	if c.contenders <= c.processes {
		return 1.2
	}
	return 1.05
}

// contention measures how long contenders of one lock take to have it once each.
func contention(ctx context.Context, st *stage, r *report) error {
	main := contest{st.size(100, 20), 3, 5 * time.Millisecond}
	cases := []struct {
		contest
		strategies []strategy
	}{
		{main, strategies()},
		{contest{main.contenders, 5, main.hold}, ours("HandOff", "Poll jittered")},
		{contest{main.contenders, 3, longHold}, ours("HandOff", "Poll jittered")},
		{contest{st.size(1000, 50), 5, main.hold}, ours("HandOff", "Poll jittered")},
		{contest{20, 20, main.hold}, ours("HandOff", "Poll jittered", "rueidislock")},
		{contest{20, 20, longHold}, ours("HandOff", "rueidislock")},
		{contest{50, 50, main.hold}, ours("HandOff", "Poll jittered", "rueidislock")},
		{contest{50, 50, longHold}, ours("HandOff", "rueidislock")},
	}
	var waves, turns []series
	for _, c := range cases {
		ideal := c.ideal()
		for _, s := range c.strategies {
			out, err := c.race(ctx, s)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			out.report(r, c.contest, s, ideal)
			if c.contest == main {
				turns = append(turns, series{name: s.name, points: out.turns()})
				if s.wave {
					waves = append(waves, series{name: s.name, points: out.waves()})
				}
			}
		}
	}
	r.note("All contenders come at the same moment and need the lock once. Ideal: the same holds one after the other, without a lock, on this machine.")
	r.note("Fairness: Jain's index of how many turns each process had had when half of all were over; 1 is equal shares.")
	r.note("redislock polls with its exponential back-off (16 to 512 ms), redsync with its own defaults (50 to 250 ms at random), rueidislock hears of changes of the key; none has fences.")
	r.plot(linePlot{title: "Commands to Redis, by " + waveBin.String() + ": " + main.String(), x: "s", y: "commands", series: waves}.of("waves"))
	r.plot(linePlot{title: "Turns that are over, in the first " + drainTime.String() + ": " + main.String(), x: "s", y: "contenders", series: turns}.of("drain"))
	return nil
}

// ideal is how long the holds take one after the other, without any lock.
func (c contest) ideal() time.Duration {
	begin := time.Now()
	for range c.contenders {
		time.Sleep(c.hold) // the workload
	}
	return time.Since(begin)
}

// race lets the contenders of several processes have the lock once each, on a Redis of their own.
func (c contest) race(ctx context.Context, s strategy) (o *outcome, err error) {
	dir, err := os.MkdirTemp("", "syncopate-bench-")
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	redis, err := devenv.StartRedis(ctx, dir, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, redis.Stop()) }()
	bar := progress(fmt.Sprintf("%s: %s", s.name, c), c.contenders)
	crowd := &crowd{}
	defer func() { err = errors.Join(err, crowd.close()) }()
	for i := range c.processes {
		share := c.contenders / c.processes
		if i < c.contenders%c.processes {
			share++
		}
		config := childConfig{
			Name: fmt.Sprint("process-", i), Redis: redis.Addr, Strategy: s.name, Contenders: share,
			HoldMicros: c.hold.Microseconds(), LimitMillis: contentionLimit.Milliseconds(),
		}
		if err := crowd.add(ctx, config); err != nil {
			return nil, err
		}
	}
	o, err = crowd.contend()
	return o, errors.Join(err, bar.Finish())
}

// outcome is what came of a contest. Times are since its begin.
type outcome struct {
	perProcess [][]turn
	attempts   []time.Duration
}

func (o *outcome) all() (all []turn) {
	for _, p := range o.perProcess {
		all = append(all, p...)
	}
	return all
}

func (o *outcome) report(r *report, c contest, s strategy, ideal time.Duration) {
	all := o.all()
	var waits, ends []time.Duration
	for _, t := range all {
		waits, ends = append(waits, t.At-t.From), append(ends, t.End)
	}
	drain := percentile(ends, 100)
	half := percentile(ends, 50)
	shares := make([]float64, len(o.perProcess))
	for i, p := range o.perProcess {
		for _, t := range p {
			if t.End <= half {
				shares[i]++
			}
		}
	}
	in := r.in(c.String(), s.name)
	in.add("drain", "s", drain.Seconds())
	in.add("ideal", "s", ideal.Seconds())
	ratio := in.add("drain / ideal", "", drain.Seconds()/ideal.Seconds())
	commands := in.add("commands per turn", "", float64(len(o.attempts))/float64(max(1, len(all))))
	in.add("wait p50", "ms", millis(percentile(waits, 50)))
	in.add("wait p95", "ms", millis(percentile(waits, 95)))
	in.add("wait p99", "ms", millis(percentile(waits, 99)))
	in.add("fairness", "", jain(shares))
	if s.name == "HandOff" {
		ratio.atMost(c.mostOfIdeal())
		commands.atMost(4)
	}
	if len(all) < c.contenders {
		r.note("%s, %s: only %d of %d had the lock within %s.", c, s.name, len(all), c.contenders, contentionLimit)
	}
}

// waves counts the commands sent to Redis over time.
func (o *outcome) waves() plotter.XYs {
	bins := make(plotter.XYs, waveTime/waveBin)
	for i := range bins {
		bins[i].X = (time.Duration(i) * waveBin).Seconds()
	}
	for _, at := range o.attempts {
		if i := int(at / waveBin); i >= 0 && i < len(bins) {
			bins[i].Y++
		}
	}
	return bins
}

// turns counts over time who had the lock.
func (o *outcome) turns() plotter.XYs {
	var ends []time.Duration
	for _, t := range o.all() {
		ends = append(ends, t.End)
	}
	percentile(ends, 100) // sorts them
	points := plotter.XYs{{X: 0, Y: 0}}
	for i, at := range ends {
		if at > drainTime {
			break
		}
		points = append(points, plotter.XY{X: at.Seconds(), Y: float64(i + 1)})
	}
	return points
}
