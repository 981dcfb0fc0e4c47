// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// What is compared is tested in internal/audit/stores.
//
// mutation: tell that takes what is unread for well, or counts what was mended, makes this fail.
func TestAudit_FindsMendsAndSaysWhatItCouldNotRead(t *testing.T) {
	p, server := newPlugin(t, testRun("team-a", "report", "u-1")), redistest.Start(t)
	p.nats = natstest.Start(t)
	conn := bustest.Connect(t, bus.Config{URL: p.nats.URL()})
	bustest.Eventually(t, "streams", func() bool { return conn.EnsureStreams(t.Context()) == nil })
	gone := job("11111111-2222-3333-4444-555555555555", 1)
	bustest.PublishRaw(t, conn, conn.Names.Job("t", gone), "{}")
	line := []string{"audit", "--wait", "1ms", "--redis-addrs", server.Addr()}

	out, _, err := p.call(line...)
	e, ok := errors.AsType[*AuditError](err)
	if !ok || e.Outcome != check.Failed || e.Count != 1 || e.Error() != "1 differences between the stores" {
		t.Errorf("%v\n%s", err, out)
	}
	for _, want := range []string{"JobLeft", "(gone)", "heals within 10 min", "-> --repair: the job is taken out", "slots: the data in Redis is being rebuilt"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out, _, err = p.call(append(line, "--repair", "-o", "json")...)
	if e, ok := errors.AsType[*AuditError](err); !ok || e.Outcome != check.Unknown || !strings.Contains(out, `"mended": [`) || !strings.Contains(e.Error(), "2 parts could not be read") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _, _ = p.call(line...); strings.Contains(out, "JobLeft") {
		t.Errorf("after the repair:\n%s", out)
	}
	if _, _, err := p.call("audit", "-o", "yaml"); err == nil {
		t.Error("a format that is none")
	}
}

// A port-forward to the NATS of another cluster was left open.
//
// mutation: a repair that does not ask whose NATS it is makes this fail.
func TestAudit_RepairsNothingOfAnotherCluster(t *testing.T) {
	server := redistest.Start(t)
	for name, c := range map[string]struct {
		objects []client.Object
		want    string
	}{
		"another":                       {[]client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "mine"}}}, "another cluster than your kubeconfig's: look at port-forwards and --context (its streams say theirs, and namespace kube-system has the UID mine)"},
		"one that may not be looked at": {nil, "find out whether NATS is this cluster's"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t, c.objects...)
			p.nats = natstest.Start(t)
			conn := bustest.Connect(t, bus.Config{URL: p.nats.URL(), Installation: "theirs"})
			bustest.Eventually(t, "streams", func() bool { return conn.EnsureStreams(t.Context()) == nil })
			gone := job("11111111-2222-3333-4444-555555555555", 1)
			bustest.PublishRaw(t, conn, conn.Names.Job("t", gone), "{}")
			line := []string{"audit", "--wait", "1ms", "--redis-addrs", server.Addr()}
			if _, _, err := p.call(append(line, "--repair")...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			if out, _, _ := p.call(line...); !strings.Contains(out, "JobLeft") {
				t.Errorf("the job is gone:\n%s", out)
			}
		})
	}
}

// A port-forward to the Redis of another cluster was left open, beside the own NATS.
//
// mutation: a repair that does not ask whose Redis it is makes this fail.
func TestAudit_RepairsNothingInTheRedisOfAnotherCluster(t *testing.T) {
	server := redistest.Start(t)
	p := newPlugin(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "mine"}})
	p.nats = natstest.Start(t)
	conn := bustest.Connect(t, bus.Config{URL: p.nats.URL(), Installation: "mine"})
	bustest.Eventually(t, "streams", func() bool { return conn.EnsureStreams(t.Context()) == nil })
	line := []string{"audit", "--repair", "--wait", "1ms", "--redis-addrs", server.Addr()}
	if err := store.Own(t.Context(), store.New(server.Client(), store.Options{Installation: "theirs"})); err != nil {
		t.Fatal(err)
	}
	want := "Redis is that of another cluster than your kubeconfig's: look at port-forwards and --context (it says theirs, and namespace kube-system has the UID mine)"
	if _, _, err := p.call(line...); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	if err := store.Own(t.Context(), store.New(server.Client(), store.Options{Installation: "mine", TakeOver: "theirs"})); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.call(line...); err != nil && strings.Contains(err.Error(), "another cluster") {
		t.Errorf("its own: %v", err)
	}
}

// aged is an API server at a revision, as a restored or copied one is.
func aged(t *testing.T, revision string, objects ...client.Object) client.Client {
	return fakeCluster(t, objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := c.List(ctx, list, opts...); err != nil {
				return err
			}
			list.SetResourceVersion(revision)
			return nil
		},
	}).Build()
}

// A kubeconfig of a copy of the cluster, as a restore drill makes it, beside production's Redis.
//
// mutation: oursIsRedis that compares names only makes this fail.
func TestARedisWhoseHistoryWentFurtherIsNotOurs(t *testing.T) {
	kube := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "mine"}}
	server := redistest.Start(t)
	reads := store.New(server.Client(), store.Options{})
	if err := store.RaiseRevision(t.Context(), store.New(server.Client(), store.Options{Installation: "mine"}), 30); err != nil {
		t.Fatal(err)
	}
	for revision, want := range map[string]string{
		"5":    "the API server is at revision 5, and this installation has seen 30",
		"30":   "",
		"31":   "",
		"text": "", // it says nothing about its history
	} {
		err := oursIsRedis(t.Context(), aged(t, revision, kube), reads, eager{clocktesting.NewFakeClock(time.Unix(0, 0))})
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("at %s: %v; want %q", revision, err, want)
		}
	}
	if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := oursIsRedis(t.Context(), aged(t, "5", kube), reads, eager{clocktesting.NewFakeClock(time.Unix(0, 0))}); err != nil {
		t.Errorf("a Redis that is anybody's: %v", err)
	}
}

// eager is a clock on which timers are over when they are made.
type eager struct{ *clocktesting.FakeClock }

// NewTimer implements clock.Clock.
func (c eager) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}

// Where NATS does not answer it is not known whose Redis stands beside it.
//
// mutation: a repair that goes on then makes this fail.
func TestAudit_RepairsNothingWithoutNATS(t *testing.T) {
	p, server := newPlugin(t), redistest.Start(t)
	p.nats = natstest.Start(t)
	p.nats.Shutdown()
	_, _, err := p.call("audit", "--repair", "--wait", "1ms", "--redis-addrs", server.Addr())
	if err == nil || !strings.Contains(err.Error(), "find out whether NATS is this cluster's") {
		t.Errorf("%v", err)
	}
}
