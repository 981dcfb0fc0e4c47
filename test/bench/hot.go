// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

const (
	// hotTimes is how many times the usual starts of a second come at the same moment.
	hotTimes = 10
	// hotLead and hotTail are how long starts come as usual, before and after that.
	hotLead, hotTail = 2 * time.Second, 3 * time.Second
	// hotBin is how long attempts are counted as one point of the picture.
	hotBin = 50 * time.Millisecond
	// hotWaitMillis is lock.maxWaitMillis: short enough for some decisions to give up, so that
	// clients have to come again.
	hotWaitMillis = 250
)

// hotSide is all fixed or all jittered: polls for the lock, and clients that come again.
type hotSide struct {
	name string
	mode v1alpha1.JitterMode
	how  retry
}

// hotLock measures a burst of ten times the usual starts for one tenant whose admission lock all of
// them need: where the controller decides, and where the webhook does.
func (d *door) hotLock(ctx context.Context, r *report, usual int) error {
	again := retries()
	sides := []hotSide{{"fixed", v1alpha1.JitterModeFixed, again[0]}, {"jittered", v1alpha1.JitterModeJittered, again[1]}}
	for _, surface := range []struct {
		name    string
		onLimit v1alpha1.OnLimit
	}{{"controller", v1alpha1.OnLimitQueue}, {"webhook", v1alpha1.OnLimitReject}} {
		picture := linePlot{title: "Attempts for one hot admission lock: " + surface.name, x: "s", y: fmt.Sprintf("attempts in %s", hotBin)}
		for _, side := range sides {
			class, err := d.policy(ctx, side.gate(), far, surface.onLimit)
			if err != nil {
				return err
			}
			line, err := d.hot(ctx, r, surface.name, class, side, usual)
			if err != nil {
				return err
			}
			picture.series = append(picture.series, line)
			if err := d.clean(ctx); err != nil {
				return err
			}
		}
		r.plot(picture.of("hot-" + surface.name))
	}
	r.note("A hot lock: %d starts a second for %s, then %d at the same moment, then as before for %s. Attempts are those of Redis, by its MONITOR; "+
		"clients come again after %s, or %s.", usual, hotLead, hotTimes*usual, hotTail, sides[0].how.name, sides[1].how.name)
	return nil
}

func (s hotSide) gate() gate {
	return gate{"Lock " + s.name, func(a *v1alpha1.AdmissionPolicy) {
		a.Strategy = v1alpha1.AdmissionStrategyLock
		a.Lock.Retry.Mode, a.Lock.MaxWaitMillis = s.mode, new(int64(hotWaitMillis))
	}}
}

// hot is one burst; it returns the attempts over time.
func (d *door) hot(ctx context.Context, r *report, surface, class string, side hotSide, usual int) (series, error) {
	before, err := scrape(ctx, d.operator)
	if err != nil {
		return series{}, err
	}
	watch, err := watchLock(d.env.Redis.Addr, class)
	if err != nil {
		return series{}, err
	}
	offsets := hotOffsets(usual)
	bar := progress(fmt.Sprintf("hot lock, %s, %s", surface, side.name), len(offsets))
	begin := time.Now()
	answers, err := d.eachOf(len(offsets), func(i int) (answer, error) {
		defer func() { _ = bar.Add(1) }() // to stderr
		time.Sleep(time.Until(begin.Add(offsets[i])))
		return d.persist(ctx, fmt.Sprintf("hot-%d-%05d", begin.UnixMilli(), i), class, waiting(), side.how)
	})
	if err == nil {
		err = d.letIn(ctx, len(offsets))
	}
	took := time.Since(begin)
	attempts := watch.stop()
	if err = errors.Join(err, bar.Finish()); err != nil {
		return series{}, err
	}
	after, err := scrape(ctx, d.operator)
	if err != nil {
		return series{}, err
	}
	in := r.in(fmt.Sprintf("a hot lock: %d starts a second, then %d at once", usual, hotTimes*usual), surface+", "+side.name)
	line := binned(side.name, attempts, begin)
	in.add("attempts per run", "", float64(len(attempts))/float64(len(offsets)))
	in.add(fmt.Sprintf("most attempts in %s", hotBin), "", slices.MaxFunc(line.points, func(a, b plotter.XY) int { return cmp.Compare(a.Y, b.Y) }).Y)
	wait := between(before, after, "syncopate_admission_lock_wait_seconds", labels{"surface": surface})
	in.add("lock wait p95", "ms", 1000*wait.quantile(0.95))
	in.add("lock wait p99", "ms", 1000*wait.quantile(0.99))
	const decisions = "syncopate_admission_decision_seconds"
	gaveUp := between(before, after, decisions, labels{"surface": surface, "outcome": "busy"})
	in.add("gave up", "% of decisions", 100*gaveUp.count/max(1, between(before, after, decisions, labels{"surface": surface}).count))
	requests := 0
	for _, a := range answers {
		requests += a.requests
	}
	in.add("requests per run", "", float64(requests)/float64(len(offsets)))
	in.add("all let in after the burst", "s", (took - hotLead).Seconds())
	return line, nil
}

// hotOffsets are when each start comes.
func hotOffsets(usual int) []time.Duration {
	var all []time.Duration
	pause := time.Second / time.Duration(usual)
	for at := time.Duration(0); at < hotLead+hotTail; at += pause {
		all = append(all, at)
	}
	return append(all, slices.Repeat([]time.Duration{hotLead}, hotTimes*usual)...)
}

// letIn waits until so many runs are under way.
func (d *door) letIn(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	return until(ctx, func() (bool, error) {
		now, err := scrape(ctx, d.operator)
		return err == nil && int(now.sum("syncopate_runs", labels{"phase": string(v1alpha1.RunRunning)})) >= n, err
	})
}

// binned counts attempts over time.
func binned(name string, attempts []time.Time, begin time.Time) series {
	counts := map[int]float64{0: 0}
	last := 0
	for _, at := range attempts {
		bin := max(0, int(at.Sub(begin)/hotBin))
		counts[bin]++
		last = max(last, bin)
	}
	s := series{name: name}
	for bin := range last + 1 {
		s.points = append(s.points, plotter.XY{X: (time.Duration(bin) * hotBin).Seconds(), Y: counts[bin]})
	}
	return s
}

// lockWatch sees each attempt to take the admission locks of a policy, as Redis does.
type lockWatch struct {
	conn     net.Conn
	done     sync.WaitGroup
	attempts []time.Time // of the goroutine until done
}

// watchLock begins to watch the locks of a policy's tenants.
func watchLock(address, policy string) (*lockWatch, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("watch the lock: %w", err)
	}
	in := bufio.NewReader(conn)
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the lock: %w", err), conn.Close())
	}
	if ok, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(ok, "+OK") {
		return nil, errors.Join(fmt.Errorf("watch the lock: Redis says %q: %w", ok, err), conn.Close())
	}
	w := &lockWatch{conn: conn}
	w.done.Go(func() {
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return // stop closed the connection
			}
			if at, ok := attemptOf(line, policy); ok {
				w.attempts = append(w.attempts, at)
			}
		}
	})
	return w, nil
}

// attemptOf reads a line of MONITOR: +1700000000.123456 [0 127.0.0.1:5] "set"
// "{adm:policy:tenant}:lock" "token" ...
func attemptOf(line, policy string) (time.Time, bool) {
	fields := strings.Fields(strings.TrimPrefix(line, "+"))
	if len(fields) < 5 || !strings.EqualFold(fields[3], `"set"`) ||
		!strings.HasPrefix(fields[4], `"{adm:`+policy+`:`) || !strings.HasSuffix(fields[4], `}:lock"`) {
		return time.Time{}, false
	}
	seconds, fraction, _ := strings.Cut(fields[0], ".")
	s, err := strconv.ParseInt(seconds, 10, 64)
	us, err2 := strconv.ParseInt(fraction, 10, 64)
	return time.Unix(s, us*1000), err == nil && err2 == nil
}

// stop ends the watch, and gives the times of all attempts.
func (w *lockWatch) stop() []time.Time {
	_ = w.conn.Close() // only read from
	w.done.Wait()
	return w.attempts
}
