// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a.b", "a.b", true},
		{"a.b", "a.c", false},
		{"a.*", "a.b", true},
		{"a.*", "a.b.c", false},
		{"a.>", "a.b.c", true},
		{"a.>", "a", false},
		{">", "a", true},
		{"a.b.c", "a.b", false},
		{"a.b", "a.b.c", false},
	} {
		if covers(c.pattern, c.subject) != c.want {
			t.Errorf("%s, %s: not %v", c.pattern, c.subject, c.want)
		}
	}
	p := permission{Allow: []string{"a.>"}, Deny: []string{"a.b"}}
	if p.allows("a.b") || !p.allows("a.c") || p.allows("b") || !(permission{Deny: []string{"x"}}).allows("y") {
		t.Error("allow and deny")
	}
	if len(published(protocol.Names{Prefix: "p"})) == 0 {
		t.Error("the operator publishes nothing")
	}
}

// mutation: forward that takes what is before the last @ for a host makes this fail.
func TestForward(t *testing.T) {
	const standard = "kubectl -n nats port-forward svc/nats 4222:4222, or say where it is with --nats-url"
	for addrs, want := range map[string]string{
		"nats://nats.nats.svc:4222": standard, "": standard, "nats://10.0.0.1:4222": standard, "::": standard,
		"tls://broker.infra.svc.cluster.local:4333,tls://x:1": "kubectl -n infra port-forward svc/broker 4333:4333, or say where it is with --nats-url",
		"TOKEN@broker.infra.svc:4333":                         "kubectl -n infra port-forward svc/broker 4333:4333, or say where it is with --nats-url",
		"nats://u:pa%ss@broker.infra.svc:4333":                "kubectl -n infra port-forward svc/broker 4333:4333, or say where it is with --nats-url",
		"broker.infra.svc:4333":                               "kubectl -n infra port-forward svc/broker 4333:4333, or say where it is with --nats-url",
	} {
		if got := forward(addrs, "nats.nats.svc:4222", "nats-url"); got != want {
			t.Errorf("%s: %s", addrs, got)
		}
	}
}

// mutation: settings that does not read --nats-storage has each limit of a stream called drift.
func TestSettings(t *testing.T) {
	got := settings([]string{"--ownership=leader", "--nats-replicas=3", "--nats-prefix=x", "--nats-memory-storage", "--webhook-bind-address=:9443", "--nats-url=a", "--redis-addrs=b", "--nats-storage=16Gi", "--other"})
	want := check.Settings{Leader: true, StreamReplica: 3, Memory: true, Storage: 16 << 30, NATSURL: "a", RedisAddrs: "b"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// mutation: a limit that follows from settings which are not known, or one that an older operator
// does not give, which is told as a failure, makes this fail.
func TestTheLimitOfASubjectIsNoFailure(t *testing.T) {
	s := bus.Sight{Info: &jetstream.StreamInfo{}, Drifts: []bus.Drift{
		{Field: "max_msgs_per_subject", Want: "10000", Got: "-1"}, {Field: "subjects", Want: "a", Got: "b"}, {Field: "num_replicas", Want: "3", Got: "1"},
	}}
	for unknown, want := range map[bool][2]int{true: {1, 0}, false: {2, 1}} {
		if got := streamOf(s, unknown); len(got.Drifts) != want[0] || len(got.Slight) != want[1] {
			t.Errorf("settings unknown: %t: %q and %q", unknown, got.Drifts, got.Slight)
		}
	}
}

func TestNodeOf(t *testing.T) {
	got := nodeOf("x", "# Server\r\nredis_version:7.0.1\r\nmaxmemory_policy:noeviction\r\nrole:slave\r\nconnected_slaves:2\r\naof_enabled:1\r\naof_last_write_status:err\r\n")
	want := check.RedisNode{Addr: "x", Version: "7.0.1", Eviction: "noeviction", Replica: true, Replicas: 2, AOF: true, Broken: "aof_last_write_status: err"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestManifests(t *testing.T) {
	const head = "apiVersion: syncopate.dev/v1alpha1\nkind: LockPolicy\nmetadata: {name: a}\n"
	all, err := Manifests(strings.NewReader("---\n" + head + "spec: {workloadClasses: [x]}\n---\napiVersion: syncopate.dev/v1alpha1\nkind: WorkflowRun\n"))
	if err != nil || len(all) != 2 || all[0].GetName() != "a" {
		t.Errorf("%v, %v", all, err)
	}
	for name, text := range map[string]string{
		"another kind": "apiVersion: v1\nkind: Secret\n", "no YAML": "{", "too many": strings.Repeat(head+"---\n", maxManifests+1),
	} {
		if _, err := Manifests(strings.NewReader(text)); err == nil || name != "no YAML" && !errors.Is(err, errManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, field := range []string{"workloadClases", "workloadclasses"} {
		if _, err := Manifests(strings.NewReader(head + "spec: {" + field + ": [x]}\n")); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("a typo in a file: %v", err)
		}
	}
	const json = `{"apiVersion": "syncopate.dev/v1alpha1", "kind": "LockPolicy", "metadata": {"name": "a"}, "spec": {"workloadClasses": ["x"]`
	if all, err := Manifests(strings.NewReader(json + "}}\n" + json + "}}\n---\n# nothing\n---\n{kind: LockPolicy, apiVersion: syncopate.dev/v1alpha1}\n")); err != nil || len(all) != 3 {
		t.Errorf("JSON: %v, %v", all, err)
	}
	for _, text := range []string{head + "spec: {workloadClasses: [x], workloadClasses: [other]}\n", json + `, "workloadClasses": ["other"]}}`} {
		if _, err := Manifests(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), `key "workloadClasses" already set`) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// mutations: saysOf that takes each refusal for one of rights, or that leaves out who refused.
func TestWhoRefusesALowerFence(t *testing.T) {
	runs := v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource()
	denied := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: metav1.StatusReasonForbidden, Message: message}}
	}
	rights := `User "jane" cannot update resource "workflowruns/status" in API group "syncopate.dev" in the namespace "a"`
	for name, c := range map[string]struct {
		err             error
		said, why, hint string
	}{
		"our policy":        {apierrors.NewForbidden(runs, "r", errors.New("ValidatingAdmissionPolicy 'syncopate-status' with binding 'b' denied request")), "syncopate-status", "", ""},
		"rights":            {apierrors.NewForbidden(runs, "r", errors.New(rights)), "", "you may not update", "administrator"},
		"another policy":    {apierrors.NewForbidden(runs, "r", errors.New("ValidatingAdmissionPolicy 'theirs' with binding 'b' denied request")), "", "'theirs'", "the operator's"},
		"a webhook":         {denied(403, `admission webhook "theirs.example.com" denied the request: no`), "", "theirs.example.com", "the operator's"},
		"a webhook by 400":  {apierrors.NewBadRequest(`admission webhook "theirs.example.com" denied the request: no`), "", "theirs.example.com", "the operator's"},
		"a webhook is down": {apierrors.NewInternalError(errors.New(`failed calling webhook "theirs.example.com": refused`)), "", "theirs.example.com", "the operator's"},
		"no server":         {errors.New("connection refused"), "", "connection refused", "kubectl version"},
	} {
		f := saysOf("a/r", c.err)
		if f.Taken || f.Run != "a/r" || !strings.Contains(f.Said, c.said) || !strings.Contains(f.Why, c.why) || !strings.Contains(f.Hint, c.hint) {
			t.Errorf("%s: %+v", name, f)
		}
		if (c.said == "") != (f.Said == "") || (c.why == "") != (f.Why == "") {
			t.Errorf("%s: it is said, and it is not: %+v", name, f)
		}
	}
}
