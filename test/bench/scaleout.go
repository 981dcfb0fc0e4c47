// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/utils/clock"

	tcpdoor "github.com/syncopate-dev/syncopate/internal/testenv/door"
	"github.com/syncopate-dev/syncopate/test/hostile"
)

const (
	// scaleOutSteps is how many steps a run has. There are so many runs that they last beyond the
	// measurement.
	scaleOutSteps = 20
	// scaleOutWatch is how long steps are counted.
	scaleOutWatch = 12 * time.Second
)

// scaleOut measures what more replicas bring where the API server is some way off.
//
// A replica writes one status at a time here. As it is shipped it writes four, and then a machine
// of two cores has no time left for more replicas: that would measure the machine.
func scaleOut(ctx context.Context, st *stage, r *report) error {
	for _, away := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
		one := 0.0
		for _, replicas := range []int{1, 3, 5} {
			c := capacity{away: away, replicas: replicas}
			if err := c.measure(ctx, st); err != nil {
				return fmt.Errorf("%s: %w", c.name(), err)
			}
			if replicas == 1 {
				one = c.perSecond
			}
			c.report(r, one)
		}
	}
	r.note("%d runs of %d steps one after the other; a job does nothing. Steps are counted for %s, in a worker's hands. A proxy adds the way to the API server, there and back. Each replica writes one status at a time (--max-concurrent-writes=1).", st.size(400, 12), scaleOutSteps, scaleOutWatch)
	r.note("Cores in use: by all processes, API server, etcd and workers included. Where they come near to all there are, the machine is the limit, and the goal does not count.")
	return nil
}

// capacity is how many steps a second so many replicas do.
type capacity struct {
	away     time.Duration
	replicas int

	perSecond, cores float64
}

func (c *capacity) name() string { return fmt.Sprintf("%s away, %d replicas", c.away, c.replicas) }

func (c *capacity) measure(ctx context.Context, st *stage) (err error) {
	w, err := st.newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	if err := hostile.ForgetOwners(ctx, w.k8s); err != nil {
		return err
	}
	if err := w.apiServerAt(ctx, c.away); err != nil {
		return err
	}
	if err := w.work(ctx, topic, workerConcurrency, echo); err != nil {
		return err
	}
	for range c.replicas {
		if _, err := w.operator(ctx, "--leader-elect=true", "--ownership=shards", "--max-concurrent-writes=1"); err != nil {
			return err
		}
	}
	time.Sleep(failoverSettle)
	if err := w.create(ctx, "run", w.size(400, 12), chain(scaleOutSteps)); err != nil {
		return err
	}
	// First writes have places of their own, as many as there are: they are not what is measured.
	if err := until(ctx, func() (bool, error) { return w.executed.Load() >= 2*int64(w.size(400, 12)), nil }); err != nil {
		return err
	}
	before := w.executed.Load()
	c.cores = coresInUse(ctx, scaleOutWatch)
	c.perSecond = float64(w.executed.Load()-before) / scaleOutWatch.Seconds()
	return nil
}

// report adds a row. one is what one replica does at this distance.
func (c *capacity) report(r *report, one float64) {
	const spare = 0.1 // of the cores: with less, they are the limit
	s := r.in("steps a second", c.name())
	s.add("steps/s", "", c.perSecond)
	s.add("cores in use", "", c.cores)
	times := s.add("times one", "", c.perSecond/one)
	if c.cores > (1-spare)*float64(r.Machine.Cores) {
		return
	}
	switch c.replicas {
	case 3:
		times.atLeast(2.5)
	case 5:
		times.atLeast(3.5)
	}
}

// apiServerAt has operators of this world reach the API server through a proxy that makes it so far
// away.
func (w *world) apiServerAt(ctx context.Context, away time.Duration) error {
	at, err := url.Parse(w.env.Config.Host)
	if err != nil {
		return fmt.Errorf("address of the API server: %w", err)
	}
	proxy, err := tcpdoor.Start(ctx, at.Host, clock.RealClock{})
	if err != nil {
		return fmt.Errorf("start the proxy: %w", err)
	}
	there := away / 2
	proxy.Poison(tcpdoor.Up, tcpdoor.Fault{Wait: there})
	proxy.Poison(tcpdoor.Down, tcpdoor.Fault{Wait: away - there})
	direct := w.env.Kubeconfig
	text, err := os.ReadFile(direct)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	far := filepath.Join(w.dir, w.name+".kubeconfig")
	if err := os.WriteFile(far, []byte(strings.ReplaceAll(string(text), at.Host, proxy.Addr())), 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	w.env.Kubeconfig = far
	w.cleanups = append(w.cleanups, func() {
		w.env.Kubeconfig = direct
		proxy.Shut()
	})
	return nil
}
