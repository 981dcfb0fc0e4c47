// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

var here = scope{"cluster", "syncopate"}

// someOwners has three owners, and partitions without one.
func someOwners() rules.Effective {
	e := rules.Effective{Origin: "a/1", Young: true}
	for p := range Partitions {
		c := rules.Claim{Term: int64(1_800_000_000 + p)}
		if p%4 > 0 {
			c.Owner = fmt.Sprintf("syncopate-7d9f-%d", p%4)
		}
		e.Claims = append(e.Claims, c)
	}
	return e
}

// What is written can be read, it is small, and whatever else stands there is refused.
// mutation: decode without the checksum, the bound, the scope or the count makes its row fail.
func TestTheObjectIsReadAsItWasWritten(t *testing.T) {
	want := someOwners()
	written := func(t *testing.T) *corev1.ConfigMap {
		t.Helper()
		o, err := encode("ns", here, want)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	got, err := decode(written(t), here)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("read %v: %s", err, diff)
	}
	if n := len(written(t).Data[dataKey]); n > 2000 {
		t.Errorf("%d bytes", n)
	}
	seal := func(o *corev1.ConfigMap, text string) {
		o.Data[dataKey], o.Data[sumKey] = text, checksum([]byte(text))
	}
	for name, c := range map[string]struct {
		change func(*corev1.ConfigMap)
		want   error
	}{
		"no data":              {func(o *corev1.ConfigMap) { o.Data = nil }, errGarbage},
		"edited":               {func(o *corev1.ConfigMap) { o.Data[dataKey] += " " }, errGarbage},
		"no JSON":              {func(o *corev1.ConfigMap) { seal(o, "{") }, errGarbage},
		"too long":             {func(o *corev1.ConfigMap) { seal(o, strings.Repeat(" ", maxDocument)+o.Data[dataKey]) }, errGarbage},
		"no version":           {func(o *corev1.ConfigMap) { replace(o, seal, `"version":1`, `"version":0`) }, errGarbage},
		"a newer version":      {func(o *corev1.ConfigMap) { replace(o, seal, `"version":1`, `"version":2`) }, errNewer},
		"of another form":      {func(o *corev1.ConfigMap) { seal(o, `{"owners":{},"version":2}`) }, errNewer},
		"newer, and long":      {func(o *corev1.ConfigMap) { seal(o, strings.Repeat(" ", maxDocument)+`{"version":2}`) }, errNewer},
		"newer, another sum":   {func(o *corev1.ConfigMap) { o.Data = map[string]string{dataKey: `{"version":2}`, "sha256": "0"} }, errNewer},
		"an owner too many":    {func(o *corev1.ConfigMap) { replace(o, seal, "[[-1,", "[[3,") }, errGarbage},
		"an owner below none":  {func(o *corev1.ConfigMap) { replace(o, seal, "[[-1,", "[[-2,") }, errGarbage},
		"no term":              {func(o *corev1.ConfigMap) { replace(o, seal, ",1800000000]", ",0]") }, errGarbage},
		"a partition too many": {func(o *corev1.ConfigMap) { replace(o, seal, "[[-1,", "[[-1,7],[-1,") }, errGarbage},
		"another cluster":      {func(o *corev1.ConfigMap) { replace(o, seal, `"cluster"`, `"other"`) }, ErrOtherInstallation},
		"another prefix":       {func(o *corev1.ConfigMap) { replace(o, seal, `"prefix":"syncopate"`, `"prefix":"p"`) }, ErrOtherInstallation},
	} {
		o := written(t)
		c.change(o)
		if _, err := decode(o, here); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	claims, err := Decode(written(t))
	if diff := cmp.Diff(want.Claims, claims); err != nil || diff != "" {
		t.Errorf("shown %v: %s", err, diff)
	}
}

// What a newer version wrote says who owns what there: whoever cannot read it must not
// write over it, and its Lease must end, so that the newer ones take its partitions.
// mutation: a look that takes it for garbage, or a Lease that is renewed, or is not when the object
// can be read again, makes this fail.
func TestWhatANewerVersionWroteIsLeftAlone(t *testing.T) {
	api, clock, key := graves(t, 0, "a"), clocktesting.NewFakeClock(time.Unix(1e9, 0)), client.ObjectKey{Namespace: "ns", Name: ObjectName}
	var written, stands corev1.ConfigMap
	k := New(Options{
		Client: api, Namespace: "ns", Member: "a", Handler: &calls{}, Clock: clock, Spread: func() float64 { return 0.5 }, Log: logr.Discard(),
	})
	own, lease := &ownLease{client: api, namespace: "ns", member: "a", lease: k.timing.Lease}, &coordinationv1.Lease{}
	rounds := func(n int) (last error) {
		for range n {
			if err := k.renew(t.Context(), own); err != nil {
				t.Fatal(err)
			}
			clock.Step(time.Second)
			last = k.round(t.Context())
		}
		return last
	}
	renewed := func() time.Time {
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: LeasePrefix + "a"}, lease); err != nil {
			t.Fatal(err)
		}
		return lease.Spec.RenewTime.Time
	}
	if err := rounds(20); err != nil || k.count() != Partitions {
		t.Fatalf("it owns %d, error %v", k.count(), err)
	}
	if err := api.Get(t.Context(), key, &written); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(written.Data[dataKey], `"version":1`, `"version":2`, 1)
	written.Data[dataKey], written.Data[sumKey] = text, checksum([]byte(text))
	if err := api.Update(t.Context(), &written); err != nil {
		t.Fatal(err)
	}
	noticed := clock.Now()
	if err := rounds(20); !errors.Is(err, errNewer) || k.count() != 0 {
		t.Errorf("it owns %d, error %v", k.count(), err)
	}
	if at := renewed(); at.After(noticed) {
		t.Errorf("its Lease was renewed at %s, and it noticed at %s", at, noticed)
	}
	if err := api.Get(t.Context(), key, &stands); err != nil || stands.ResourceVersion != written.ResourceVersion {
		t.Errorf("it was written over (error %v)", err)
	}
	if err := api.Delete(t.Context(), &stands); err != nil {
		t.Fatal(err)
	}
	if err := rounds(20); err != nil || k.until.Load().session == 0 || clock.Since(renewed()) > time.Second {
		t.Errorf("without the object: its Lease was renewed %s ago, error %v", clock.Since(renewed()), err)
	}
}

// replace changes a part of the document, and its checksum.
func replace(o *corev1.ConfigMap, seal func(*corev1.ConfigMap, string), old, is string) {
	seal(o, strings.Replace(o.Data[dataKey], old, is, 1))
}

// FuzzDecode: whatever stands in the object is read or refused.
func FuzzDecode(f *testing.F) {
	o, err := encode("ns", here, someOwners())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(o.Data[dataKey])
	f.Add(`{"version":1,"installation":"cluster","prefix":"syncopate","origin":"x","owners":["a"],"partitions":[[0,1]]}`)
	f.Fuzz(func(t *testing.T, text string) {
		e, err := decode(&corev1.ConfigMap{Data: map[string]string{dataKey: text, sumKey: checksum([]byte(text))}}, here)
		if err == nil && len(e.Claims) != Partitions {
			t.Errorf("%d claims", len(e.Claims))
		}
	})
}
