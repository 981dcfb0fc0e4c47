// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		default:
			return "pod-b.two"
		}
	})
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: operatorNamespace, Name: ownership.LeasePrefix + "pod-a.one", Labels: map[string]string{ownership.LeaseLabel: ownership.MemberLease},
			Annotations: map[string]string{ownership.UnfitAnnotation: "true"},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(time.Date(2026, 11, 20, 10, 9, 58, 0, time.UTC)))},
	}
	p := newPlugin(t, under, ended, object, lease)
	table := p.must("shards")
	for _, want := range []string{
		"pod-a.one   2s ago    1            1      does what is done once, does not reach Redis or NATS",
		"pod-b.two   never     62           0      has no Lease: it is gone", "1 of 65 partitions have no owner",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	var s runview.Shards
	if err := json.Unmarshal([]byte(p.must("shards", "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	if at := s.Partitions[mine]; at != (runview.Partition{Owner: "pod-a.one", Term: int64(mine) + 1, Runs: 1}) || len(s.Unowned) != 1 {
		t.Errorf("partition %d: %+v, unowned %v", mine, at, s.Unowned)
	}
}

// mutation: garbage that is shown as no owners at all makes this fail.
func TestShards_SaysWhatItCannotRead(t *testing.T) {
	if _, _, err := newPlugin(t).call("shards"); err == nil || !strings.Contains(err.Error(), "has a leader") {
		t.Errorf("without the object: %v", err)
	}
	object := owners(t, func(int) string { return "" })
	object.Data["checksum"] = "0"
	if _, _, err := newPlugin(t, object).call("shards"); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("garbage: %v", err)
	}
}

// mutation: why without the owner, or with that of another partition, makes this fail.
func TestWhy_WhoDrivesTheRun(t *testing.T) {
	run := testRun("team-a", "report", "u-1")
	mine := protocol.Partition("u-1")
	for _, c := range []struct{ owner, want string }{
		{"pod-a.one", fmt.Sprintf("replica pod-a.one drives the run (partition %d)", mine)},
		{"", fmt.Sprintf("no replica owns partition %d", mine)},
	} {
		object := owners(t, func(p int) string {
			if p == mine {
				return c.owner
			}
			return "pod-b.two"
		})
		if text := newPlugin(t, run, object).must("why", "report"); !strings.Contains(text, c.want) {
			t.Errorf("no %q in\n%s", c.want, text)
		}
	}
	if text := newPlugin(t, run).must("why", "report"); strings.Contains(text, "owner") {
		t.Errorf("an owner though nobody says who:\n%s", text)
	}
}
