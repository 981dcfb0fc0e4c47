// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
)

const (
	// silence is how long an operator writes nothing before all of its events count as written.
	silence = time.Second
	// silenceLimit bounds the wait for that.
	silenceLimit = time.Minute
)

var errNoSilence = errors.New("the operator does not stop writing")

// created creates the runs of a load by many clients while an operator works, and measures until
// the last of them has ended and the last event is written.
func (w *world) created(ctx context.Context, m *devenv.Manager, l load, prefix string) (t peerTry, err error) {
	// Only runs that match are sent, so a run is read once here, when it has ended.
	ends, err := w.watchEnds(ctx)
	if err != nil {
		return t, err
	}
	defer func() { ends.Stop() }()
	before, err := scrapeServer(ctx, w.env.Config)
	if err != nil {
		return t, err
	}
	pids, used := w.pids(m), passage{cpu: map[string]time.Duration{}}
	used.addCPU(pids, -1)
	begin := time.Now()
	creation := make(chan error, 1)
	go func() { creation <- w.createBy(ctx, writers, prefix, l.runs, l.spec) }()
	last, err := w.awaitEnds(ctx, &ends, prefix, l)
	if err = errors.Join(err, <-creation); err != nil {
		return t, err
	}
	end, err := w.awaitSilence(ctx, m)
	if err != nil {
		return t, err
	}
	after, err := scrapeServer(ctx, w.env.Config)
	if err != nil {
		return t, err
	}
	t.ended, t.silent = last.Sub(begin), max(end.at.Sub(begin), last.Sub(begin))
	t.operator = (end.operator + used.cpu["operator"]).Seconds()
	t.server = (end.server + used.cpu["kube-apiserver"]).Seconds()
	t.etcd = (end.etcd + used.cpu["etcd"]).Seconds()
	t.status = after.serverWrites("workflowruns", "status") - before.serverWrites("workflowruns", "status")
	t.events = after.serverWrites("events", "") - before.serverWrites("events", "")
	t.others = after.serverWrites("workflowruns", "") - before.serverWrites("workflowruns", "") - float64(l.runs)
	return t, nil
}

// watchEnds watches runs that have succeeded: first those that have by now.
func (w *world) watchEnds(ctx context.Context) (watch.Interface, error) {
	ends, err := w.k8s.Watch(ctx, &v1alpha1.WorkflowRunList{}, client.InNamespace(w.name), client.MatchingFields{"status.phase": string(v1alpha1.RunSucceeded)})
	if err != nil {
		return nil, fmt.Errorf("watch runs: %w", err)
	}
	return ends, nil
}

// awaitEnds waits until all runs have succeeded, and says when the last one was seen. An API server
// under load may end a watch; then another begins.
func (w *world) awaitEnds(ctx context.Context, ends *watch.Interface, name string, l load) (last time.Time, err error) {
	bar := progress(name+" "+l.name, l.runs)
	defer func() { err = errors.Join(err, bar.Finish()) }()
	seen := map[types.UID]bool{}
	for len(seen) < l.runs {
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("wait for %d of %d runs: %w", l.runs-len(seen), l.runs, context.Cause(ctx))
		case e, ok := <-(*ends).ResultChan():
			run, isRun := e.Object.(*v1alpha1.WorkflowRun)
			switch {
			case !ok || e.Type == watch.Error:
				next, err := w.watchEnds(ctx)
				if err != nil {
					return last, err
				}
				(*ends).Stop()
				*ends = next
			case isRun && e.Type != watch.Deleted && !seen[run.UID] && isOf(run.Name, name):
				seen[run.UID], last = true, time.Now()
				_ = bar.Set(len(seen)) // to stderr
			}
		}
	}
	return last, nil
}

// isOf says whether a run is one of those that create makes with a prefix.
func isOf(run, prefix string) bool {
	var n int
	_, err := fmt.Sscanf(run, prefix+"-%05d", &n)
	return err == nil
}

// moment is the CPU time used when an operator had written the last time.
type moment struct {
	at                     time.Time
	operator, server, etcd time.Duration
}

// awaitSilence waits until an operator writes nothing for a while, and says what was when it
// stopped. It reads the operator's own metrics: those of the API server cost too much.
func (w *world) awaitSilence(ctx context.Context, m *devenv.Manager) (end moment, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, silenceLimit, errNoSilence)
	defer cancel()
	pids := childrenOf(os.Getpid())
	writes := -1.0
	return end, until(ctx, func() (bool, error) {
		now := moment{time.Now(), cpuTime(m.PID()), cpuTime(pids["kube-apiserver"]), cpuTime(pids["etcd"])}
		figures, err := scrape(ctx, m)
		if err != nil {
			return false, err
		}
		if n := figures.apiWrites(); n != writes {
			writes, end = n, now
		}
		return time.Since(end.at) >= silence, nil
	})
}

// serverWrites counts the writes of a resource that an API server accepted.
func (a metrics) serverWrites(resource, subresource string) float64 {
	total := 0.0
	for _, verb := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		total += a.sum("apiserver_request_total", labels{"verb": verb, "resource": resource, "subresource": subresource})
	}
	return total
}
