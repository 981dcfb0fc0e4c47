// SPDX-License-Identifier: Apache-2.0

package runwatch_test

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/runwatch"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// patience ends a hung test; it is no expectation about speed.
const patience = time.Minute

// scene is an API server, who writes to it, and a cache of its runs.
type scene struct {
	t            *testing.T
	live         client.Client
	statuses     *workflowrun.StatusWriter
	runs         cache.Cache
	own, decoded atomic.Int64
	told         atomic.Int64 // updates of which the informer told
}

func newScene(t *testing.T) *scene {
	t.Helper()
	config := testenv.APIServer(t, testenv.CRDs()).Config
	scheme, err := testenv.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	// It stands still: an event waits for its write's answer, however long that takes.
	s, writes := &scene{t: t}, runwatch.NewWrites(clocktesting.NewFakeClock(time.Now()))
	if s.live, err = client.New(config, client.Options{Scheme: scheme, HTTPClient: c}); err != nil {
		t.Fatal(err)
	}
	if s.statuses, err = workflowrun.NewStatusWriter(config, scheme, c); err != nil {
		t.Fatal(err)
	}
	s.statuses.Writes = writes
	s.startCache(config, c, scheme, writes)
	return s
}

func (s *scene) startCache(config *rest.Config, c *http.Client, scheme *runtime.Scheme, writes *runwatch.Writes) {
	s.t.Helper()
	informers, err := runwatch.Informers(config, c, scheme, writes, func(own bool) {
		if own {
			s.own.Add(1)
		} else {
			s.decoded.Add(1)
		}
	})
	if err != nil {
		s.t.Fatal(err)
	}
	options := cache.Options{Scheme: scheme, HTTPClient: c, DefaultTransform: cache.TransformStripManagedFields(), NewInformer: informers}
	if s.runs, err = cache.New(config, options); err != nil {
		s.t.Fatal(err)
	}
	informer, err := s.runs.GetInformer(s.t.Context(), &v1alpha1.WorkflowRun{}, cache.BlockUntilSynced(false))
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { s.told.Add(1) }}); err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.runs.Start(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
	})
	if !s.runs.WaitForCacheSync(s.t.Context()) {
		s.t.Fatal("the cache does not sync")
	}
}

// cached waits until the cache has a version of a run, and compares it with what is stored.
func (s *scene) cached(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	s.t.Helper()
	var have, stored v1alpha1.WorkflowRun
	err := wait.PollUntilContextTimeout(s.t.Context(), time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := s.runs.Get(ctx, client.ObjectKeyFromObject(run), &have)
		return err == nil && have.ResourceVersion == run.ResourceVersion, client.IgnoreNotFound(err)
	})
	if err != nil {
		s.t.Fatalf("version %s does not come: %v", run.ResourceVersion, err)
	}
	if err := s.live.Get(s.t.Context(), client.ObjectKeyFromObject(run), &stored); err != nil {
		s.t.Fatal(err)
	}
	stored.ManagedFields, stored.TypeMeta, have.TypeMeta = nil, metav1.TypeMeta{}, metav1.TypeMeta{}
	if diff := cmp.Diff(&stored, &have); diff != "" {
		s.t.Fatalf("the cache has another object than the API server (-stored +cached):\n%s", diff)
	}
	return &have
}

func (s *scene) write(run *v1alpha1.WorkflowRun, n int64) {
	s.t.Helper()
	run.Status = &v1alpha1.WorkflowRunStatus{
		Phase: v1alpha1.RunRunning, Fence: &n, Lock: &v1alpha1.RunLockStatus{LeaseID: "lease", Holder: "test"},
		Steps: []v1alpha1.StepStatus{{Name: "s", Phase: v1alpha1.StepSucceeded, Attempt: 1, Output: &runtime.RawExtension{Raw: []byte(`{"a":[1,null],"n":2.5}`)}}},
	}
	body, err := json.Marshal(run)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.statuses.Put(s.t.Context(), run, body, len(body)); err != nil {
		s.t.Fatal(err)
	}
}

// The cache is what the API server stores, whoever wrote it, and tells of each version once.
// Mutations that make this fail: Note before the answer has the version; a take that does not look
// at the version (an edit by another is never seen); an informer that does not use its own watch.
func TestTheCacheHasWhatIsStoredWhoeverWroteIt(t *testing.T) {
	s := newScene(t)
	run := &v1alpha1.WorkflowRun{
		TypeMeta:   metav1.TypeMeta{APIVersion: "syncopate.dev/v1alpha1", Kind: "WorkflowRun"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Annotations: map[string]string{"note": "line\nbreak"}},
		Spec:       v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{{Name: "s", Job: &v1alpha1.Job{Topic: "t"}}}},
	}
	if err := s.live.Create(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	run = s.cached(run)
	for n := range int64(40) {
		run.TypeMeta = metav1.TypeMeta{APIVersion: "syncopate.dev/v1alpha1", Kind: "WorkflowRun"}
		written := run.DeepCopy() // it is not changed any more
		s.write(written, 2*n+1)
		run = written.DeepCopy()
		if n%4 == 0 {
			run.Spec.Suspend = !run.Spec.Suspend
			if err := s.live.Update(t.Context(), run); err != nil {
				t.Fatal(err)
			}
		}
		run = s.cached(run)
	}
	t.Logf("%d own, %d decoded", s.own.Load(), s.decoded.Load())
	if s.own.Load() != 40 || s.decoded.Load() < 10 {
		t.Errorf("%d events were taken for own writes, %d decoded; want the 40 writes, and the 10 edits", s.own.Load(), s.decoded.Load())
	}
	if err := s.live.Delete(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := s.runs.Get(ctx, client.ObjectKeyFromObject(run), &v1alpha1.WorkflowRun{})
		return client.IgnoreNotFound(err) == nil && err != nil && s.told.Load() >= 50, nil // it tells after the cache has it
	})
	if err != nil {
		t.Errorf("the cache keeps a run that was deleted, or tells of too little: %v", err)
	}
	if n := s.told.Load(); n != 50 {
		t.Errorf("the informer told of %d versions, want 40 writes and 10 edits", n)
	}
}
