// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// owners is the ConfigMap in which partition p belongs to a replica; "": to none.
func owners(t *testing.T, owner func(p int) string) *corev1.ConfigMap {
	t.Helper()
	var names []string
	var partitions [][2]int
	for p := range ownership.Partitions {
		at := -1
		if name := owner(p); name != "" {
			names, at = append(names, name), len(names)
		}
		partitions = append(partitions, [2]int{at, p + 1})
	}
	raw, err := json.Marshal(map[string]any{"version": 1, "installation": "i", "prefix": "syncopate", "origin": "o", "owners": names, "partitions": partitions})
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: ownership.ObjectName},
		Data:       map[string]string{"ownership.json": string(raw), "checksum": fmt.Sprintf("%08x", crc32.ChecksumIEEE(raw))},
	}
}

// leaseOf is the Lease of a replica, renewed so long before the clock of newPlugin.
func leaseOf(name string, ago time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: operatorNamespace, Name: ownership.LeasePrefix + name, Labels: map[string]string{ownership.LeaseLabel: ownership.MemberLease},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(time.Date(2026, 11, 20, 10, 10, 0, 0, time.UTC).Add(-ago))), LeaseDurationSeconds: new(int32(6))},
	}
}

// leaderLease is that of --ownership=leader.
func leaderLease(holder string, ago time.Duration) *coordinationv1.Lease {
	l := leaseOf("", ago)
	l.Name, l.Labels, l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = "syncopate-manager", nil, &holder, new(int32(15))
	return l
}

// mutation: ShardsOf that counts runs that ended, or that leaves out replicas without a Lease, or
// partitions without an owner, makes this fail.
func TestShards_WhoDrivesWhat(t *testing.T) {
	under, ended := testRun("team-a", "under", "u-1"), testRun("team-a", "ended", "u-2")
	under.Status = &v1alpha1.WorkflowRunStatus{}
	ended.Status = &v1alpha1.WorkflowRunStatus{CompletedAt: new(metav1.NewTime(time.Unix(0, 0)))}
	mine := protocol.Partition("u-1")
	object := owners(t, func(p int) string {
		switch p {
		case mine, ownership.Singletons:
			return "pod-a.one"
		case (mine + 1) % protocol.Partitions:
			return ""
		case (mine + 2) % protocol.Partitions:
			return "pod-c.three"
		default:
			return "pod-b.two"
		}
	})
	lease := leaseOf("pod-a.one", 2*time.Second)
	lease.Annotations = map[string]string{ownership.UnfitAnnotation: "true"}
	p := newPlugin(t, under, ended, object, lease, leaseOf("pod-c.three", time.Hour))
	table := p.must("shards")
	for _, want := range []string{
		"pod-a.one     2s ago    1            1      does what is done once, does not reach Redis or NATS",
		"pod-b.two     never     61           0      has no Lease: it is gone",
		"pod-c.three   60m ago   1            0      has not renewed its Lease in time, if the clock here is right", "1 of 65 partitions have no owner",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	var s runview.Shards
	text := p.must("shards", "-o", "json")
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text, `"trouble": "has n`); n != 2 {
		t.Errorf("%d replicas are marked:\n%s", n, text)
	}
	if at := s.Partitions[mine]; at != (runview.Partition{Owner: "pod-a.one", Term: int64(mine) + 1, Runs: 1}) || len(s.Unowned) != 1 {
		t.Errorf("partition %d: %+v, unowned %v", mine, at, s.Unowned)
	}
}

// mutation: garbage that is shown as no owners at all, or owners from before there was a leader,
// make this fail.
func TestShards_SaysWhatItCannotRead(t *testing.T) {
	if _, _, err := newPlugin(t).call("shards"); err == nil || !strings.Contains(err.Error(), "has a leader") {
		t.Errorf("without the object: %v", err)
	}
	if _, _, err := newPlugin(t, leaderLease("pod-l_1", time.Second)).call("shards"); err == nil || !strings.Contains(err.Error(), "the leader pod-l_1 drives all runs") {
		t.Errorf("a leader from the start: %v", err)
	}
	object := owners(t, func(int) string { return "" })
	if _, _, err := newPlugin(t, object, leaderLease("pod-l_1", time.Second)).call("shards"); err == nil || !strings.Contains(err.Error(), "the leader pod-l_1 drives all runs") {
		t.Errorf("the object is from before: %v", err)
	}
	object.Data["checksum"] = "0"
	if _, _, err := newPlugin(t, object).call("shards"); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("garbage: %v", err)
	}
}

// mutation: why without the owner, with that of another partition, or with one that is dead taken
// for one that drives the run, or for a leader that does, makes this fail.
func TestWhy_WhoDrivesTheRun(t *testing.T) {
	run := testRun("team-a", "report", "u-1")
	mine := protocol.Partition("u-1")
	drives, owned := fmt.Sprintf("replica pod-a.one drives the run (partition %d)", mine), fmt.Sprintf("replica pod-a.one owned partition %d and ", mine)
	none, leads := fmt.Sprintf("no replica owns partition %d", mine), "the leader pod-l_1 drives the run"
	for name, c := range map[string]struct {
		owner  string
		lease  *coordinationv1.Lease
		hide   bool // the user may not see Leases
		absent bool // there is no ConfigMap
		leader *coordinationv1.Lease
		want   string
	}{
		"it renews its Lease":       {owner: "pod-a.one", lease: leaseOf("pod-a.one", time.Second), want: drives},
		"it has not for an hour":    {owner: "pod-a.one", lease: leaseOf("pod-a.one", time.Hour), want: owned + "has not renewed its Lease since 2026-11-20T09:10:00Z"},
		"it has no Lease":           {owner: "pod-a.one", lease: leaseOf("pod-b.two", time.Second), want: owned + "has no Lease: nobody drives the run"},
		"its Lease may not be seen": {owner: "pod-a.one", lease: leaseOf("pod-a.one", time.Hour), hide: true, want: drives},
		"nobody owns it":            {lease: leaseOf("pod-b.two", time.Second), want: none},
		"a leader, and no Lease":    {owner: "pod-a.one", lease: leaseOf("pod-b.two", time.Hour), leader: leaderLease("pod-l_1", time.Second), want: leads},
		"a leader, and an old one":  {owner: "pod-a.one", lease: leaseOf("pod-a.one", time.Hour), leader: leaderLease("pod-l_1", 29*time.Second), want: leads},
		"a leader beside it":        {owner: "pod-a.one", lease: leaseOf("pod-a.one", time.Second), leader: leaderLease("pod-l_1", time.Second), want: leads},
		"a leader, and no owner":    {lease: leaseOf("pod-b.two", time.Hour), leader: leaderLease("pod-l_1", time.Second), want: leads},
		"a leader from the start":   {absent: true, lease: leaseOf("pod-b.two", time.Hour), leader: leaderLease("pod-l_1", time.Second), want: leads},
		"a leader that is gone":     {owner: "pod-a.one", lease: leaseOf("pod-b.two", time.Hour), leader: leaderLease("pod-l_1", time.Hour), want: owned + "has no Lease"},
		"a leader that went":        {lease: leaseOf("pod-b.two", time.Hour), leader: leaderLease("", time.Second), want: none},
		"a leader of before":        {owner: "pod-a.one", lease: leaseOf("pod-a.one", time.Second), leader: leaderLease("pod-l_1", time.Hour), want: drives},
	} {
		object := owners(t, func(p int) string {
			if p == mine {
				return c.owner
			}
			return "pod-b.two"
		})
		objects := []client.Object{run, c.lease}
		if !c.absent {
			objects = append(objects, object)
		}
		if c.leader != nil {
			objects = append(objects, c.leader)
		}
		cluster := fakeCluster(t, objects...).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, lease := o.(*coordinationv1.Lease); lease && c.hide {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, key.Name, errors.New("no"))
				}
				return w.Get(ctx, key, o, opts...)
			},
		}).Build()
		p := newPlugin(t)
		p.cluster = func() (client.Client, string, error) { return cluster, "team-a", nil }
		text := p.must("why", "report")
		if !strings.Contains(text, c.want) || strings.Contains(text, "replica pod-a.one drives") != (c.want == drives) {
			t.Errorf("%s: no %q in\n%s", name, c.want, text)
		}
		if n := strings.Count(text, "see whether the operator runs"); n != 1 { // nobody looked at the run
			t.Errorf("%s: that is told %d times:\n%s", name, n, text)
		}
	}
	for _, objects := range [][]client.Object{{run}, {run, leaderLease("pod-l_1", time.Hour)}} {
		if text := newPlugin(t, objects...).must("why", "report"); strings.Contains(text, "owner") {
			t.Errorf("an owner though nobody says who:\n%s", text)
		}
	}
}

// mutation: remarks that look for the annotation alone make this fail: Redis and NATS may be well.
func TestShards_WhyAReplicaIsGivenNothing(t *testing.T) {
	for cause, want := range map[string]string{
		"true":                    "  does not reach Redis or NATS\n", // of a replica of before
		ownership.UnfitDependency: "  does not reach Redis or NATS\n",
		ownership.UnfitProbation:  "  has lost its Lease too often, and is given no partitions for a while\n",
		ownership.UnfitStarting:   "  has not begun, or begins again\n",
		ownership.UnfitBlocked:    "  does nothing while the Lease syncopate-manager has a holder, or while it cannot read that Lease\n",
		ownership.UnfitRedis:      "  does nothing while its Redis is not the one that the other replicas use, or while that is not known yet\n",
	} {
		lease := leaseOf("pod-a.one", 2*time.Second)
		lease.Annotations = map[string]string{ownership.UnfitAnnotation: cause}
		p := newPlugin(t, owners(t, func(int) string { return "pod-a.one" }), lease)
		if table := p.must("shards"); !strings.Contains(strings.ReplaceAll(table, "once, ", "  "), want) {
			t.Errorf("%s: no %q in\n%s", cause, want, table)
		}
	}
}
