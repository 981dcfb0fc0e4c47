// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// created is the answer to a start that succeeded.
const created = http.StatusCreated

// door is an API server that asks the operator's webhook, and a client of it that does
// not try again.
type door struct {
	*world
	operator *devenv.Manager
	hooks    *envtest.WebhookInstallOptions
	rest     *rest.RESTClient
	policies []*v1alpha1.LockPolicy
}

// answer is that to one start.
type answer struct {
	code       int
	took       time.Duration
	retryAfter time.Duration
	requests   int
	refused    map[int]int // requests by code
}

// openDoor starts an operator with its webhook and has the API server ask it.
func (w *world) openDoor(ctx context.Context) (*door, error) {
	if err := w.prepare(ctx, func(ctx context.Context, job worker.Job) (any, error) {
		time.Sleep(clientJob) // the workload
		return echo(ctx, job)
	}); err != nil {
		return nil, err
	}
	d := &door{world: w, hooks: &envtest.WebhookInstallOptions{
		Paths: []string{filepath.Join(w.options.root, "config", "webhook", "base", "configuration.yaml")},
	}}
	if err := d.hooks.Install(w.env.Config); err != nil {
		return nil, fmt.Errorf("install the webhook: %w", err)
	}
	config := rest.CopyConfig(w.env.Config)
	config.GroupVersion, config.APIPath = &v1alpha1.GroupVersion, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(w.k8s.Scheme()).WithoutConversion()
	var err error
	if d.rest, err = rest.RESTClientFor(config); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	d.operator, err = w.operator(ctx,
		w.profileArgs("--webhook-bind-address", net.JoinHostPort(d.hooks.LocalServingHost, strconv.Itoa(d.hooks.LocalServingPort)),
			"--webhook-cert-dir", d.hooks.LocalServingCertDir)...)
	if err != nil {
		return nil, err
	}
	return d, d.guarded(ctx)
}

func (d *door) close(ctx context.Context) error {
	var errs []error
	for _, p := range d.policies {
		errs = append(errs, d.k8s.Delete(ctx, p))
	}
	for _, h := range d.hooks.ValidatingWebhooks {
		errs = append(errs, d.k8s.Delete(ctx, h))
	}
	return errors.Join(append(errs, d.hooks.Cleanup())...)
}

// policy creates a policy, and waits until the operator has it. The class is its name.
func (d *door) policy(ctx context.Context, g gate, limit int, onLimit v1alpha1.OnLimit) (class string, err error) {
	p := limiting(fmt.Sprintf("gate-%d", len(d.policies)), g, limit, onLimit)
	if err := d.k8s.Create(ctx, p); err != nil {
		return "", fmt.Errorf("create policy: %w", err)
	}
	d.policies = append(d.policies, p)
	return p.Name, until(ctx, func() (bool, error) {
		var now v1alpha1.LockPolicy
		err := d.k8s.Get(ctx, client.ObjectKeyFromObject(p), &now)
		return err == nil && now.Status != nil && now.Status.ObservedGeneration > 0, err
	})
}

// guarded waits until the API server asks the webhook: a class that is admitted none is refused.
func (d *door) guarded(ctx context.Context) error {
	class, err := d.policy(ctx, gates()[0], 0, v1alpha1.OnLimitReject)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	i := 0
	return until(ctx, func() (bool, error) {
		i++
		a, err := d.start(ctx, fmt.Sprintf("sentry-%d", i), class, waiting())
		return a.code == http.StatusTooManyRequests, err
	})
}

// clean deletes all runs and waits until no slot is taken any more.
func (d *door) clean(ctx context.Context) error {
	if err := d.deleteRuns(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	return until(ctx, func() (bool, error) {
		now, err := scrape(ctx, d.operator)
		return err == nil && now.sum("syncopate_runs", nil) == 0, err
	})
}

// start creates a run, once.
func (d *door) start(ctx context.Context, name, class string, spec *v1alpha1.WorkflowRunSpec) (answer, error) {
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: d.name, Name: name}, Spec: *spec.DeepCopy()}
	run.APIVersion, run.Kind = v1alpha1.GroupVersion.String(), "WorkflowRun"
	run.Spec.WorkloadClass = class
	begin := time.Now()
	result := d.rest.Post().Namespace(d.name).Resource("workflowruns").Body(run).MaxRetries(0).Do(ctx)
	a := answer{took: time.Since(begin), code: created, requests: 1}
	err := result.Error()
	if err == nil {
		return a, nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return a, fmt.Errorf("start a run: %w", err)
	}
	a.code = int(status.Status().Code)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		a.retryAfter = time.Duration(seconds) * time.Second
	}
	return a, nil
}

// startAll starts runs that wait for a person, all at the same moment.
func (d *door) startAll(ctx context.Context, what, class string, n int) ([]answer, error) {
	bar := progress(what, n)
	begin := time.Now()
	answers, err := d.eachOf(n, func(i int) (answer, error) {
		defer func() { _ = bar.Add(1) }() // to stderr
		return d.start(ctx, fmt.Sprintf("start-%d-%05d", begin.UnixMilli(), i), class, waiting())
	})
	return answers, errors.Join(err, bar.Finish())
}

// eachOf does something n times at the same moment.
func (d *door) eachOf(n int, do func(i int) (answer, error)) ([]answer, error) {
	answers, errs := make([]answer, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { answers[i], errs[i] = do(i) })
	}
	all.Wait()
	return answers, errors.Join(errs...)
}

// retry is how a client comes again after a refusal: try counts from 0.
type retry struct {
	name string
	wait func(try int, retryAfter time.Duration) time.Duration
}

func retries() []retry {
	return []retry{
		{"fixed 500 ms", func(int, time.Duration) time.Duration { return 500 * time.Millisecond }},
		{"exponential, jitter", func(try int, _ time.Duration) time.Duration {
			return time.Duration(rand.Float64() * float64(min(5*time.Second, 200*time.Millisecond<<min(try, 10))))
		}},
		{"Retry-After", func(_ int, after time.Duration) time.Duration { return after }},
	}
}

// clients measures what becomes of clients that all come at once, for few slots, and come again
// until their run is created.
func (d *door) clients(ctx context.Context, r *report, n int) error {
	const limit = 10
	queue, err := d.policy(ctx, gates()[0], limit, v1alpha1.OnLimitQueue)
	if err != nil {
		return err
	}
	none := retry{name: "Queue: no retries"}
	ideal, err := d.comeAgain(ctx, r, none, queue, n, 0)
	if err != nil {
		return err
	}
	reject, err := d.policy(ctx, gates()[0], limit, v1alpha1.OnLimitReject)
	if err != nil {
		return err
	}
	for _, how := range retries() {
		if _, err := d.comeAgain(ctx, r, how, reject, n, ideal); err != nil {
			return err
		}
	}
	return nil
}

// comeAgain has clients start one run each, and returns how long it took until all
// runs had succeeded.
func (d *door) comeAgain(ctx context.Context, r *report, how retry, class string, n int, ideal time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, loadLimit)
	defer cancel()
	bar := progress("clients, "+how.name, n)
	begin := time.Now()
	answers, err := d.eachOf(n, func(i int) (answer, error) {
		defer func() { _ = bar.Add(1) }() // to stderr
		return d.persist(ctx, fmt.Sprintf("client-%d-%05d", begin.UnixMilli(), i), class, chain(1), how)
	})
	if err := errors.Join(err, bar.Finish()); err != nil {
		return 0, err
	}
	err = until(ctx, func() (bool, error) {
		now, err := scrape(ctx, d.operator)
		return err == nil && int(now.sum("syncopate_runs", labels{"phase": string(v1alpha1.RunSucceeded)})) >= n, err
	})
	if err != nil {
		return 0, err
	}
	took := time.Since(begin)
	if ideal == 0 {
		ideal = took
	}
	in := r.in("clients that come again", how.name)
	var waited []time.Duration
	requests, codes := 0, map[int]int{}
	for _, a := range answers {
		waited = append(waited, a.took)
		requests += a.requests
		for code, times := range a.refused {
			codes[code] += times
		}
	}
	in.add("all done", "s", took.Seconds())
	in.add("all done / Queue", "", took.Seconds()/ideal.Seconds())
	in.add("created p50", "ms", millis(percentile(waited, 50)))
	in.add("created p95", "ms", millis(percentile(waited, 95)))
	in.add("requests per run", "", float64(requests)/float64(n))
	in.add("429", "% of requests", 100*float64(codes[429])/float64(requests))
	in.add("503", "% of requests", 100*float64(codes[503])/float64(requests))
	return took, d.clean(ctx)
}

// persist starts a run, and tries again until it is created.
func (d *door) persist(ctx context.Context, name, class string, spec *v1alpha1.WorkflowRunSpec, how retry) (answer, error) {
	begin := time.Now()
	refused := map[int]int{}
	for try := 0; ; try++ {
		a, err := d.start(ctx, name, class, spec)
		if err != nil {
			return a, err
		}
		if a.code == created {
			return answer{code: created, took: time.Since(begin), requests: try + 1, refused: refused}, nil
		}
		refused[a.code]++
		if how.wait == nil || (a.code != http.StatusTooManyRequests && a.code != http.StatusServiceUnavailable) {
			return a, fmt.Errorf("%w: start refused with %d", errWrongEnd, a.code)
		}
		select {
		case <-ctx.Done():
			return a, fmt.Errorf("start a run: %w", context.Cause(ctx))
		case <-time.After(how.wait(try, a.retryAfter)):
		}
	}
}
