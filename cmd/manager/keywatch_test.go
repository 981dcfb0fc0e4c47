// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

const keyPatience = 30 * time.Second

// mutation: a wait of keyLookPause after each failure, or of keyRetryPause after each, makes this
// fail; so does no read at the start.
func TestTheKeysAreReadAtTheStartAfterAChangeAndFromTimeToTime(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Now())
	reads := make(chan struct{})
	var answer error
	w := newKeyWatch(c, func(context.Context) error {
		reads <- struct{}{}
		return answer
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Start(ctx) }()
	awaitRead := func(why string) {
		t.Helper()
		select {
		case <-reads:
		case <-time.After(keyPatience):
			t.Fatalf("no read %s", why)
		}
	}
	pauses := func(d time.Duration, why string) {
		t.Helper()
		waitForTimer(t, c)
		c.Step(d - 1)
		select {
		case <-reads:
			t.Fatalf("a read before %s: %s", d, why)
		case <-time.After(20 * time.Millisecond):
		}
		c.Step(1)
		answer = nil
		awaitRead(why)
	}
	awaitRead("at the start")
	pauses(keyLookPause, "the watch may not be allowed")

	waitForTimer(t, c)
	answer = errors.New("not reached")
	w.handler().OnUpdate(nil, nil)
	awaitRead("after a change")
	pauses(keyRetryPause, "the keys could not be read")

	waitForTimer(t, c)
	answer = fmt.Errorf("%w: an entry is missing", bus.ErrConfig)
	w.handler().OnDelete(nil)
	awaitRead("after a deletion")
	pauses(keyLookPause, "unusable keys do not mend by themselves")

	for range 3 { // nobody reads meanwhile, and the watch must not wait for it
		w.handler().OnAdd(nil, false)
	}
	awaitRead("after several changes")
	stop()
	for {
		select {
		case <-reads: // of a change that came during a read
			continue
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(keyPatience):
			t.Error("does not end")
		}
		break
	}
	if w.NeedLeaderElection() {
		t.Error("replicas that stand by must know the keys")
	}
}

func waitForTimer(t *testing.T, c *clocktesting.FakeClock) {
	t.Helper()
	deadline := time.After(keyPatience)
	for !c.HasWaiters() {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatal("nobody waits")
		}
	}
}

// mutation: unusable or unread keys that are returned without an error, a metric that does not come
// back, or a line of log per read makes this fail.
func TestWhatIsWrongWithTheSecretIsToldOnce(t *testing.T) {
	good := map[string]string{entryCurrentID: "k1", entryCurrent: strings.Repeat("x", keyBytes)}
	next := map[string]string{
		entryCurrentID: "k2", entryCurrent: strings.Repeat("y", keyBytes), entryPreviousID: "k1", entryPrevious: strings.Repeat("x", keyBytes),
	}
	broken := map[string]string{entryCurrentID: "k2\n", entryCurrent: strings.Repeat("y", keyBytes)}
	api := apiServer(keySecretWith(good))
	var away error
	reader := interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if away != nil {
				return away
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	var logged []string
	registry := prometheus.NewRegistry()
	s := &keySource{
		secrets: reader, namespace: namespace, metrics: newKeyMetrics(registry),
		log: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}),
	}
	put := func(data map[string]string) {
		t.Helper()
		if err := api.Update(t.Context(), keySecretWith(data)); err != nil {
			t.Fatal(err)
		}
	}
	for i, step := range []struct {
		do     func()
		ok     bool
		config bool
		usable float64
		inUse  string
		says   string // in a new line of the log; empty: none
	}{
		{func() {}, true, false, 1, `current="k1",previous=""`, `"current"="k1"`},
		{func() {}, true, false, 1, `current="k1",previous=""`, ""},
		{func() { put(broken) }, false, true, 0, `current="k1",previous=""`, "line ends"},
		{func() {}, false, true, 0, `current="k1",previous=""`, ""},
		{func() { away = apierrors.NewTimeoutError("away", 1) }, false, false, 0, `current="k1",previous=""`, "cannot be read now"},
		{func() { away = nil; put(next) }, true, false, 1, `current="k2",previous="k1"`, `"current"="k2"`},
		{func() { away = apierrors.NewTimeoutError("away", 1) }, false, false, 1, `current="k2",previous="k1"`, "cannot be read now"},
		{func() { away = nil }, true, false, 1, `current="k2",previous="k1"`, `"current"="k2"`},
		{func() {
			if err := api.Delete(t.Context(), keySecretWith(nil)); err != nil {
				t.Fatal(err)
			}
		}, false, true, 0, `current="k2",previous="k1"`, "not found"},
	} {
		before := len(logged)
		step.do()
		_, err := s.load(t.Context())
		if (err == nil) != step.ok || errors.Is(err, bus.ErrConfig) != step.config {
			t.Errorf("step %d: error %v", i, err)
		}
		if got := testutil.ToFloat64(s.metrics.usable); got != step.usable {
			t.Errorf("step %d: usable %v, want %v", i, got, step.usable)
		}
		want := "# HELP syncopate_result_keys 1 for the ids of the keys in use: the one that signs the tokens of jobs, and the previous one, which is accepted too.\n" +
			"# TYPE syncopate_result_keys gauge\nsyncopate_result_keys{" + step.inUse + "} 1\n"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "syncopate_result_keys"); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
		news := logged[before:]
		if step.says == "" && len(news) != 0 || step.says != "" && (len(news) != 1 || !strings.Contains(news[0], step.says)) {
			t.Errorf("step %d logged %q, want %q", i, news, step.says)
		}
		for _, line := range news {
			if strings.Contains(line, "xxxx") || strings.Contains(line, "yyyy") {
				t.Errorf("step %d logs a key: %s", i, line)
			}
		}
	}
}

// mutation: loadKeys in place of readKeys makes this fail: a running operator would draw new keys.
func TestASecretThatIsGoneIsNotMadeWhileTheOperatorRuns(t *testing.T) {
	api := apiServer()
	s := &keySource{secrets: api, namespace: namespace, metrics: newKeyMetrics(prometheus.NewRegistry()), log: logr.Discard()}
	if _, err := s.load(t.Context()); !errors.Is(err, bus.ErrConfig) {
		t.Errorf("error %v", err)
	}
	var list corev1.SecretList
	if err := api.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(0, len(list.Items)); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
}
