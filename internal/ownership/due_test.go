// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// desk is a Keeper that is not started, and which calls it makes.
type desk struct {
	*Keeper
	calls []string
	// taken is the version that a write makes; "": writes fail.
	taken string
}

// newDesk is one that acts on all partitions, and has listed the members a moment before.
func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{}
	note := func(call string) { d.calls = append(d.calls, call) }
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			note("get " + key.Name)
			return errors.New("slow")
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			note("list")
			return nil
		},
		Update: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.UpdateOption) error {
			note("write")
			if d.taken == "" {
				return errors.New("slow")
			}
			object.SetResourceVersion(d.taken)
			return nil
		},
	})
	d.Keeper = New(Options{Client: c, Namespace: "ns", Member: "a", LeaderLease: "leader", Handler: &calls{}, Clock: clock.RealClock{}, Spread: func() float64 { return 0 }, Log: logr.Discard(), Timing: Timing{Fresh: time.Minute, Look: time.Minute}})
	before, owned := rules.Effective{Origin: "o"}, rules.Effective{Origin: "o"}
	for range Partitions {
		before.Claims, owned.Claims = append(before.Claims, Claim{Term: 1}), append(owned.Claims, Claim{Owner: "a", Term: 2})
	}
	d.apply(func(m *rules.Member, now rules.Time) {
		d.health.blocked = false // nobody holds the Lease of leader election
		m.Marked(rules.Mark{}, now)
		m.Looked(rules.Look{Sent: now, Received: now, Version: "1", Effective: &before})
		m.Renewed(now, now)
		m.Looked(rules.Look{Sent: now + 1, Received: now + 1, Version: "1", Effective: &before})
		m.Listed(rules.List{Sent: now + 2, Received: now + 2})
		m.Looked(rules.Look{Sent: now + 3, Received: now + 3, Version: "2", Effective: &owned})
	})
	d.tell("2", 2)
	return d
}

// tell has the watch tell of a version in which it owns all under a term.
func (d *desk) tell(version string, term int64) {
	e := rules.Effective{Origin: "o"}
	for range Partitions {
		e.Claims = append(e.Claims, Claim{Owner: "a", Term: term})
	}
	object, err := encode("ns", d.api.scope, e)
	if err != nil {
		panic(err)
	}
	object.ResourceVersion = version
	d.told.Store(object)
}

// tellGarbage has it tell of an object that is none of ownership.
func (d *desk) tellGarbage() {
	d.told.Store(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "3"}})
}

// leave has it begin to hand all on.
func (d *desk) leave() {
	d.apply(func(m *rules.Member, now rules.Time) {
		d.health.leaving = true
		m.Marked(rules.Mark{Leaving: true}, now)
	})
}

// ending has the work on all partitions begin to end, with a list that counts.
func (d *desk) ending() {
	d.leave()
	d.apply(func(m *rules.Member, now rules.Time) { m.Listed(rules.List{Sent: now, Received: now}) })
}

// end has it end.
func (d *desk) end() {
	d.ending()
	d.apply(func(m *rules.Member, now rules.Time) {
		var all []int
		for p := range Partitions {
			all = append(all, p)
		}
		m.Handled(all, now)
	})
}

// mutations: lookOnce without leaves or failed, round that looks though it leaves, give without
// isNews, and isNews that asks for a session only make this fail.
func TestWhatIsDueComesFirst(t *testing.T) {
	owners := "get " + ObjectName
	for name, test := range map[string]struct {
		before func(*desk)
		round  bool // it is time for one
		late   bool // it was, a while ago
		failed bool
		want   []string
	}{
		"a round":  {round: true, want: []string{owners}},
		"nothing":  {},
		"news":     {before: func(d *desk) { d.tell("3", 3) }},
		"old news": {before: func(d *desk) { d.tell("1", 1) }, want: []string{owners}},
		"its own write is not told yet": {before: func(d *desk) {
			d.replaced = []string{"1"}
			d.tell("1", 1)
		}},
		"news of nothing":    {before: func(d *desk) { d.tell("3", 2) }, want: []string{owners}},
		"garbage":            {before: (*desk).tellGarbage, want: []string{owners}},
		"the object is gone": {before: func(d *desk) { d.told.Store(nil) }, want: []string{owners}},
		"who leaves lists":   {before: (*desk).leave, round: true, want: []string{"list"}},
		"who leaves has news": {before: func(d *desk) {
			d.leave()
			d.tell("3", 3)
		}, want: []string{"list"}},
		"who leaves has old news": {before: func(d *desk) {
			d.leave()
			d.tell("1", 1)
		}, want: []string{owners}},
		"who leaves tries again":    {before: (*desk).leave, round: true, failed: true, want: []string{"list"}},
		"work ends":                 {before: (*desk).ending, round: true},
		"work ends for long":        {before: (*desk).ending, round: true, late: true, want: []string{owners}},
		"work ends after a failure": {before: (*desk).ending, round: true, failed: true, want: []string{owners}},
		"a gift":                    {before: (*desk).end, round: true, want: []string{"write"}},
		"a gift that failed":        {before: (*desk).end, round: true, failed: true, want: []string{owners}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			if test.before != nil {
				test.before(d)
			}
			full := d.now()
			if test.round {
				full -= d.timing.Look
			}
			if test.late {
				full -= d.timing.Look
			}
			_ = d.lookOnce(t.Context(), &full, test.failed)
			if !slices.Equal(d.calls, test.want) {
				t.Errorf("calls %q, want %q", d.calls, test.want)
			}
		})
	}
}

// mutation: write that does not note what it replaced makes this fail: each write of a hand-over
// would have a look behind it, for which the next one waits.
func TestItsOwnWriteIsNoNewsBeforeTheWatchTellsOfIt(t *testing.T) {
	d := newDesk(t)
	d.end()
	d.taken = "3"
	full := d.now()
	for range 3 {
		if err := d.lookOnce(t.Context(), &full, false); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"write"}; !slices.Equal(d.calls, want) {
		t.Errorf("calls %q, want %q", d.calls, want)
	}
}

// mutations: untilNext without ends makes this fail (it would wait for nothing, in a circle), and
// so does one that waits for longer than wantsRound.
func TestWhoWaitsForWorkThatEndsWaitsAsLongAsTheRound(t *testing.T) {
	for name, test := range map[string]struct {
		before func(*desk)
		failed bool
		round  time.Duration // in looks
	}{
		"nothing ends":         {round: 9},
		"work ends":            {before: (*desk).ending, round: 19},
		"work ends, no answer": {before: (*desk).ending, failed: true, round: 9},
	} {
		d := newDesk(t)
		if test.before != nil {
			test.before(d)
		}
		due := d.timing.Look * test.round / 10
		for _, since := range []time.Duration{0, d.timing.Look / 2, due - 1, due} {
			wait := untilNext(d.Keeper, since, test.failed)
			if since+wait > due {
				t.Errorf("%s: a round is begun %v after the last one, want %v", name, since+wait, due)
			}
			if wait <= 0 && !wantsRound(d.Keeper, since, test.failed) {
				t.Errorf("%s: %v after the last round nothing is waited for, and nothing is done", name, since)
			}
		}
	}
}
