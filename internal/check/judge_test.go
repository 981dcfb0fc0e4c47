// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

var now = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func lockPolicy(name string, age time.Duration, classes ...string) v1alpha1.LockPolicy {
	return v1alpha1.LockPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age))},
		Spec:       v1alpha1.LockPolicySpec{WorkloadClasses: classes},
	}
}

// good is an installation without a fault, in which every check has something to look at.
func good() Facts {
	coalesced, rejects := lockPolicy("coalesced", time.Hour, "c"), lockPolicy("rejects", time.Hour, "r")
	coalesced.Spec.Checkpoint.Mode = v1alpha1.CheckpointCoalesced
	rejects.Spec.Admission.OnLimit = v1alpha1.OnLimitReject
	return Facts{
		Now:       now,
		Server:    Server{Version: "v1.34.1", Clock: Clock{Error: time.Second}},
		CRDs:      CRDs{Items: []CRD{{Name: "workflowruns.syncopate.dev", Established: true}}},
		Admission: Admission{Items: []AdmissionPolicy{{Name: "syncopate-status", Bindings: [][]string{{"Audit"}, {"Audit", "Deny"}}}}},
		Fence:     Fence{Run: "a/b", Said: "by the rule of the CRD"},
		Operator:  Operator{Wanted: 2, Ready: 2, Images: []string{"syncopate:v1"}},
		Rights:    Rights{Who: "the operator", Asked: 3},
		Install:   Rights{Who: "you", Asked: 3},
		Webhook:   Webhook{Endpoints: 2, Authorities: []Authority{{Subject: "CN=a", From: now.Add(-time.Hour), To: now.Add(1000 * time.Hour)}}},
		Partitions: Partitions{Total: 65, Owners: []Owner{
			{Name: "pod-a.one", Renewed: now.Add(-5 * time.Second), Duration: 15 * time.Second},
		}},
		Policies: Policies{Items: []v1alpha1.LockPolicy{coalesced, rejects}},
		NATS: NATS{
			Version: "2.12.1", MaxPayload: 1 << 20, User: User{Name: "operator"}, Consumers: Consumers{Wanted: 64},
			Streams: []Stream{{Name: "SYNCOPATE_JOBS", Replicas: 3, Leader: true}},
		},
		Redis: Redis{
			Nodes:   []RedisNode{{Addr: "Redis", Version: "7.0.1", Eviction: "noeviction", AOF: true, Replicas: 1}},
			Latency: Latency{P99: time.Millisecond, Samples: 200},
		},
		Manifests: []Manifest{{Name: "LockPolicy/x"}},
	}
}

var lost = Unread{Why: "it is away"}

// cases has for each code what gives it each verdict but OK. want is all that is not OK.
var cases = map[string]struct {
	change func(*Facts)
	want   map[Code]Verdict
}{
	"an old Kubernetes":               {func(f *Facts) { f.Server.Version = "v1.32.9" }, map[Code]Verdict{KubernetesVersion: Failed}},
	"the oldest Kubernetes that does": {func(f *Facts) { f.Server.Version = "v1.33.0" }, nil},
	"a Kubernetes with a plus":        {func(f *Facts) { f.Server.Version = "v1.33+" }, nil},
	"a version that is none":          {func(f *Facts) { f.Server.Version = "yes" }, map[Code]Verdict{KubernetesVersion: Unknown}},
	"no API server":                   {func(f *Facts) { f.Server.Unread = lost }, map[Code]Verdict{KubernetesVersion: Unknown}},

	"CRDs that cannot be read":     {func(f *Facts) { f.CRDs.Unread = lost }, map[Code]Verdict{CRDsThere: Unknown, CRDsEqual: Unknown}},
	"a CRD that is missing":        {func(f *Facts) { f.CRDs.Items[0].Missing = true }, map[Code]Verdict{CRDsThere: Failed}},
	"a CRD not established":        {func(f *Facts) { f.CRDs.Items[0].Established = false }, map[Code]Verdict{CRDsThere: Failed}},
	"a CRD of another release":     {func(f *Facts) { f.CRDs.Items[0].Differs = []string{".scope"} }, map[Code]Verdict{CRDsEqual: Failed}},
	"admission policies unread":    {func(f *Facts) { f.Admission.Unread = lost }, map[Code]Verdict{AdmissionPolicies: Unknown}},
	"an admission policy missing":  {func(f *Facts) { f.Admission.Items[0].Missing = true }, map[Code]Verdict{AdmissionPolicies: Failed}},
	"no binding":                   {func(f *Facts) { f.Admission.Items[0].Bindings = nil }, map[Code]Verdict{AdmissionPolicies: Failed}},
	"a binding that only warns":    {func(f *Facts) { f.Admission.Items[0].Bindings = [][]string{{"Warn"}} }, map[Code]Verdict{AdmissionPolicies: Failed}},
	"a policy that lets errors by": {func(f *Facts) { f.Admission.Items[0].Ignores = true }, map[Code]Verdict{AdmissionPolicies: Failed}},
	"a policy that asks less":      {func(f *Facts) { f.Admission.Items[0].Narrowed = true }, map[Code]Verdict{AdmissionPolicies: Failed}},
	"a binding that denies for a part": {func(f *Facts) {
		f.Admission.Items[0].Bindings, f.Admission.Items[0].PartBindings = [][]string{{"Audit"}}, [][]string{{"Deny"}}
	}, map[Code]Verdict{AdmissionPolicies: Failed}},
	"a further binding for a part": {func(f *Facts) { f.Admission.Items[0].PartBindings = [][]string{{"Audit"}} }, nil},
	"a lower fence is taken":       {func(f *Facts) { f.Fence.Taken = true }, map[Code]Verdict{LowerFence: Failed}},
	"no run to try":                {func(f *Facts) { f.Fence.Unread = lost }, map[Code]Verdict{LowerFence: Unknown}},

	"no Deployment":           {func(f *Facts) { f.Operator.Missing = true }, map[Code]Verdict{OperatorReady: Failed, OperatorVersions: Unknown}},
	"Deployment unread":       {func(f *Facts) { f.Operator.Unread = lost }, map[Code]Verdict{OperatorReady: Unknown, OperatorVersions: Unknown}},
	"scaled to nothing":       {func(f *Facts) { f.Operator.Wanted = 0 }, map[Code]Verdict{OperatorReady: Failed}},
	"no replica ready":        {func(f *Facts) { f.Operator.Ready = 0 }, map[Code]Verdict{OperatorReady: Failed}},
	"one of two ready":        {func(f *Facts) { f.Operator.Ready = 1 }, map[Code]Verdict{OperatorReady: Warning}},
	"one replica":             {func(f *Facts) { f.Operator.Wanted, f.Operator.Ready = 1, 1 }, map[Code]Verdict{OperatorReady: Warning}},
	"two versions":            {func(f *Facts) { f.Operator.Images = []string{"a", "b"} }, map[Code]Verdict{OperatorVersions: Failed}},
	"two versions in rollout": {func(f *Facts) { f.Operator.Images, f.Operator.Rolling = []string{"a", "b"}, true }, map[Code]Verdict{OperatorVersions: Warning}},
	"no pods":                 {func(f *Facts) { f.Operator.Images = nil }, map[Code]Verdict{OperatorVersions: Unknown}},
	"pods unread":             {func(f *Facts) { f.Operator.PodsUnread = lost }, map[Code]Verdict{OperatorVersions: Unknown}},
	"a right is missing":      {func(f *Facts) { f.Rights.Missing = []string{"get leases"} }, map[Code]Verdict{OperatorRights: Failed}},
	"rights unread":           {func(f *Facts) { f.Rights.Unread = lost }, map[Code]Verdict{OperatorRights: Unknown}},

	"what an admission policy asks is not known": {
		func(f *Facts) { f.Admission.Items[0].Unread = lost }, map[Code]Verdict{AdmissionPolicies: Unknown},
	},
	"what it asks is not known, and it has no binding": {func(f *Facts) {
		f.Admission.Items[0].Unread, f.Admission.Items[0].Bindings = lost, nil
	}, map[Code]Verdict{AdmissionPolicies: Failed}},

	"webhook unread":          {func(f *Facts) { f.Webhook.Unread = lost }, map[Code]Verdict{WebhookAuthority: Unknown, WebhookReached: Unknown, RejectUnguarded: Unknown}},
	"a bundle that is no PEM": {func(f *Facts) { f.Webhook.Broken = "x" }, map[Code]Verdict{WebhookAuthority: Failed}},
	"an expired bundle":       {func(f *Facts) { f.Webhook.Authorities[0].To = now }, map[Code]Verdict{WebhookAuthority: Failed}},
	"a bundle of the future":  {func(f *Facts) { f.Webhook.Authorities[0].From = now.Add(time.Second) }, map[Code]Verdict{WebhookAuthority: Failed}},
	"a bundle that ends soon": {func(f *Facts) { f.Webhook.Authorities[0].To = now.Add(expirySoon - time.Second) }, map[Code]Verdict{WebhookAuthority: Warning}},
	"an old and a new one": {func(f *Facts) {
		f.Webhook.Authorities = append(f.Webhook.Authorities, Authority{From: now.Add(-2 * time.Hour), To: now.Add(-time.Hour)})
	}, nil},
	"webhook not called":            {func(f *Facts) { f.Webhook.Call.Unreached = "refused" }, map[Code]Verdict{WebhookReached: Failed}},
	"webhook without endpoints":     {func(f *Facts) { f.Webhook.Endpoints = 0 }, map[Code]Verdict{WebhookReached: Failed}},
	"webhook's dry run forbidden":   {func(f *Facts) { f.Webhook.Call.Unread = lost }, map[Code]Verdict{WebhookReached: Unknown}},
	"webhook that may be passed by": {func(f *Facts) { f.Webhook.Ignores = true }, map[Code]Verdict{RejectUnguarded: Warning}},
	"the same, endpoints unread": {
		func(f *Facts) { f.Webhook.Ignores, f.Webhook.Endpoints = true, -1 }, map[Code]Verdict{WebhookReached: Unknown, RejectUnguarded: Warning},
	},
	"a class that rejects, and the webhook is not asked for it": {
		func(f *Facts) { f.Webhook.Classes = []string{"payments"} }, map[Code]Verdict{RejectUnguarded: Failed},
	},
	"two classes that reject, and it is asked for one": {func(f *Facts) {
		f.Webhook.Classes = []string{"r"}
		f.Policies.Items[1].Spec.WorkloadClasses = []string{"r", "s"}
	}, map[Code]Verdict{RejectUnguarded: Failed}},
	"the webhook is asked for the class that rejects": {func(f *Facts) { f.Webhook.Classes = []string{"payments", "r"} }, nil},
	"it is not known what the webhook is asked for": {
		func(f *Facts) { f.Webhook.Asked = lost }, map[Code]Verdict{WebhookReached: Unknown, RejectUnguarded: Unknown},
	},
	"the same, and it may be passed by": {
		func(f *Facts) { f.Webhook.Asked, f.Webhook.Ignores = lost, true }, map[Code]Verdict{RejectUnguarded: Unknown},
	},
	"no webhook": {func(f *Facts) { f.Webhook = Webhook{Missing: true} }, map[Code]Verdict{RejectUnguarded: Failed}},
	"no webhook and nobody needs it": {
		func(f *Facts) { f.Webhook, f.Policies.Items = Webhook{Missing: true}, nil }, nil,
	},

	"Leases of all namespaces unread": {func(f *Facts) { f.Elsewhere.Unread = lost }, map[Code]Verdict{OneOperator: Unknown}},
	"a Lease in another namespace that is renewed": {func(f *Facts) {
		f.Elsewhere.Replicas = []Replica{{Namespace: "flow", Owner: Owner{Renewed: now.Add(-15*time.Second - leaseGrace), Duration: 15 * time.Second}}}
	}, map[Code]Verdict{OneOperator: Warning}},
	"a Lease that is renewed, and the account is entitled": {func(f *Facts) {
		f.Elsewhere.Replicas = []Replica{{Namespace: "flow", Owner: Owner{Renewed: now.Add(-15*time.Second - leaseGrace), Duration: 15 * time.Second}}}
		f.Elsewhere.Entitled = []string{"flow"}
	}, map[Code]Verdict{OneOperator: Failed}},
	"a Lease that is renewed, and the streams name its namespace": {func(f *Facts) {
		f.Elsewhere.Replicas = []Replica{{Namespace: "flow", Owner: Owner{Renewed: now, Duration: 15 * time.Second}}}
		f.NATS.Homes, f.Elsewhere.Asked = []string{"flow"}, lost
	}, map[Code]Verdict{OneOperator: Failed}},
	"a Lease that is renewed, and rights are not known": {func(f *Facts) {
		f.Elsewhere.Replicas = []Replica{{Namespace: "flow", Owner: Owner{Renewed: now.Add(time.Hour), Duration: 15 * time.Second}}}
		f.Elsewhere.Asked = lost
	}, map[Code]Verdict{OneOperator: Unknown}},
	"what it left": {func(f *Facts) {
		f.Elsewhere.Replicas = []Replica{{Namespace: "flow", Owner: Owner{Renewed: now.Add(-16*time.Second - leaseGrace), Duration: 15 * time.Second}}}
	}, map[Code]Verdict{OneOperator: Warning}},
	"partitions unread":     {func(f *Facts) { f.Partitions.Unread = lost }, map[Code]Verdict{PartitionOwners: Unknown}},
	"a leader":              {func(f *Facts) { f.Partitions = Partitions{Leader: true} }, nil},
	"a partition of nobody": {func(f *Facts) { f.Partitions.Unowned = []int{7} }, map[Code]Verdict{PartitionOwners: Failed}},
	"an owner by a clock that is ahead of the servers'": {func(f *Facts) {
		f.Partitions.Owners[0].Renewed = now.Add(-2*time.Minute - 5*time.Second)
		f.Server.Clock.Offset, f.NATS.Clock.Offset, f.Redis.Clock.Offset = -2*time.Minute, -2*time.Minute, -2*time.Minute
	}, map[Code]Verdict{ClocksApart: Failed}},
	"an owner by a clock that is behind the API server's": {func(f *Facts) {
		f.Partitions.Owners[0].Renewed, f.Server.Clock.Offset = now.Add(-5*time.Second), 2*time.Minute
	}, map[Code]Verdict{ClocksApart: Failed}},
	"an owner without a Lease": {func(f *Facts) { f.Partitions.Owners[0].NoLease = true }, map[Code]Verdict{PartitionOwners: Failed}},
	"an owner that is late": {
		func(f *Facts) { f.Partitions.Owners[0].Renewed = now.Add(-15*time.Second - leaseGrace) }, nil,
	},
	"an owner whose Lease ended": {
		func(f *Facts) { f.Partitions.Owners[0].Renewed = now.Add(-16*time.Second - leaseGrace) }, map[Code]Verdict{PartitionOwners: Failed},
	},

	"policies unread": {func(f *Facts) { f.Policies.Unread = lost }, map[Code]Verdict{
		ClassConflicts: Unknown, PolicyArithmetic: Unknown, CoalescedOnOne: Unknown, RejectUnguarded: Unknown,
	}},
	"a class in two policies": {
		func(f *Facts) { f.Policies.Items = append(f.Policies.Items, lockPolicy("late", time.Minute, "c")) }, map[Code]Verdict{ClassConflicts: Failed},
	},
	"a class of a policy in a file": {func(f *Facts) {
		p := lockPolicy("file", 0, "c")
		f.Manifests = append(f.Manifests, Manifest{Name: "LockPolicy/file", Policy: &p})
	}, map[Code]Verdict{ClassConflicts: Failed}},
	"a file that takes the class away": {func(f *Facts) {
		f.Policies.Items = append(f.Policies.Items, lockPolicy("late", time.Minute, "c"))
		p := lockPolicy("late", 0, "d")
		f.Manifests = append(f.Manifests, Manifest{Name: "LockPolicy/late", Policy: &p})
	}, nil},
	"renewals that do not fit": {
		func(f *Facts) { f.Policies.Items[0].Spec.RunLock.Renewal.IntervalMillis = new(int64(14_000)) }, map[Code]Verdict{PolicyArithmetic: Failed},
	},
	"a time-out above the interval": {
		func(f *Facts) { f.Policies.Items[0].Spec.RunLock.Renewal.TimeoutMillis = 10_000 }, map[Code]Verdict{PolicyArithmetic: Failed},
	},
	"Continue without scope Run": {
		func(f *Facts) { f.Policies.Items[0].Spec.RunLock.Renewal.OnFailure = v1alpha1.RenewalFailureContinue }, map[Code]Verdict{PolicyArithmetic: Failed},
	},
	"an admission lock that ends too early": {func(f *Facts) {
		a := &f.Policies.Items[0].Spec.Admission
		a.Strategy, a.Lock.TTLSeconds = v1alpha1.AdmissionStrategyLock, 1
	}, map[Code]Verdict{PolicyArithmetic: Failed}},

	"no NATS": {func(f *Facts) { f.NATS = NATS{Unread: lost} }, map[Code]Verdict{
		NATSVersion: Unknown, NATSStreams: Unknown, NATSDrift: Unknown, NATSReplicas: Unknown, NATSMaxPayload: Unknown, NATSConsumers: Unknown, NATSRights: Unknown,
		CoalescedOnOne: Unknown,
	}},
	"an old NATS":                          {func(f *Facts) { f.NATS.Version = "2.11.9" }, map[Code]Verdict{NATSVersion: Failed}},
	"no JetStream":                         {func(f *Facts) { f.NATS.NoJetStream = "no" }, map[Code]Verdict{NATSStreams: Failed, NATSDrift: Unknown, NATSReplicas: Unknown}},
	"no stream":                            {func(f *Facts) { f.NATS.Streams[0].Missing = true }, map[Code]Verdict{NATSStreams: Failed}},
	"a stream that may not be asked about": {func(f *Facts) { f.NATS.Streams[0].Unread = lost }, map[Code]Verdict{NATSStreams: Unknown}},
	"a stream without a leader":            {func(f *Facts) { f.NATS.Streams[0].Leader = false }, map[Code]Verdict{NATSStreams: Failed}},
	"a stream without a limit of old":      {func(f *Facts) { f.NATS.Streams[0].Slight = []string{"limit"} }, map[Code]Verdict{NATSDrift: Warning}},
	"a stream with other subjects":         {func(f *Facts) { f.NATS.Streams[0].Drifts = []string{"subjects"} }, map[Code]Verdict{NATSDrift: Failed}},
	"a stream on one server":               {func(f *Facts) { f.NATS.Streams[0].Replicas = 1 }, map[Code]Verdict{NATSReplicas: Warning, CoalescedOnOne: Warning}},
	"a replica that is away":               {func(f *Facts) { f.NATS.Streams[0].Behind = []string{"n2"} }, map[Code]Verdict{NATSReplicas: Warning}},
	"a small max_payload":                  {func(f *Facts) { f.NATS.MaxPayload = 1<<20 - 1 }, map[Code]Verdict{NATSMaxPayload: Warning}},
	"a tiny max_payload":                   {func(f *Facts) { f.NATS.MaxPayload = 256<<10 - 1 }, map[Code]Verdict{NATSMaxPayload: Failed}},
	"a consumer is missing":                {func(f *Facts) { f.NATS.Consumers.Missing = []string{"p01"} }, map[Code]Verdict{NATSConsumers: Failed}},
	"consumers unread":                     {func(f *Facts) { f.NATS.Consumers.Unread = lost }, map[Code]Verdict{NATSConsumers: Unknown}},
	"a NATS user with few rights":          {func(f *Facts) { f.NATS.User.Missing = []string{"x"} }, map[Code]Verdict{NATSRights: Warning}},
	"a NATS user that is not known":        {func(f *Facts) { f.NATS.User.Unread = lost }, map[Code]Verdict{NATSRights: Unknown}},

	"no Redis": {func(f *Facts) { f.Redis = Redis{Unread: lost} }, map[Code]Verdict{
		RedisVersion: Unknown, RedisEviction: Unknown, RedisPersistence: Unknown, RedisReplicas: Unknown, RedisLatency: Unknown,
	}},
	"an old Redis":                                   {func(f *Facts) { f.Redis.Nodes[0].Version = "6.0.16" }, map[Code]Verdict{RedisVersion: Failed}},
	"a Redis that evicts":                            {func(f *Facts) { f.Redis.Nodes[0].Eviction = "allkeys-lru" }, map[Code]Verdict{RedisEviction: Failed}},
	"a Redis that does not say":                      {func(f *Facts) { f.Redis.Nodes[0].Eviction = "" }, map[Code]Verdict{RedisEviction: Unknown}},
	"a Redis without AOF, as in examples/production": {func(f *Facts) { f.Redis.Nodes[0].AOF, f.Redis.Nodes[0].Replicas = false, 2 }, nil},
	"one Redis without AOF": {
		func(f *Facts) { f.Redis.Nodes[0].AOF, f.Redis.Nodes[0].Replicas = false, 0 }, map[Code]Verdict{RedisPersistence: Warning, RedisReplicas: Warning},
	},
	"a Redis with a full disk": {func(f *Facts) { f.Redis.Nodes[0].Broken = "err" }, map[Code]Verdict{RedisPersistence: Failed}},
	"one Redis":                {func(f *Facts) { f.Redis.Nodes[0].Replicas = 0 }, map[Code]Verdict{RedisReplicas: Warning}},
	"a replica of Redis":       {func(f *Facts) { f.Redis.Nodes[0].Replica = true }, map[Code]Verdict{RedisReplicas: Failed}},
	"a Redis that is slow":     {func(f *Facts) { f.Redis.Latency.P99 = 250 * time.Millisecond }, map[Code]Verdict{RedisLatency: Warning}},
	"a Redis that is too slow": {func(f *Facts) { f.Redis.Latency.P99 = time.Second }, map[Code]Verdict{RedisLatency: Failed}},
	"a Redis without scripts":  {func(f *Facts) { f.Redis.Latency.Unread = lost }, map[Code]Verdict{RedisLatency: Unknown}},
	"slow for the shortest policy": {func(f *Facts) {
		f.Policies.Items[0].Spec.RunLock.Renewal.TimeoutMillis = 100
		f.Redis.Latency.P99 = 100 * time.Millisecond
	}, map[Code]Verdict{RedisLatency: Failed}},

	"clocks 2 s apart for certain":  {func(f *Facts) { f.Redis.Clock.Offset = 2*time.Second + 1 }, map[Code]Verdict{ClocksApart: Warning}},
	"clocks 2 s apart":              {func(f *Facts) { f.Redis.Clock.Offset = 2 * time.Second }, nil},
	"clocks that may be 2 s apart":  {func(f *Facts) { f.Server.Clock.Offset = 3 * time.Second }, nil},
	"clocks 10 s apart for certain": {func(f *Facts) { f.NATS.Clock.Offset = -10*time.Second - 1 }, map[Code]Verdict{ClocksApart: Failed}},
	"two clocks on either side": {func(f *Facts) {
		f.NATS.Clock.Offset, f.Redis.Clock.Offset = -6*time.Second, 6*time.Second
	}, map[Code]Verdict{ClocksApart: Failed}},
	"one clock unread": {func(f *Facts) { f.Redis.Clock.Unread = lost }, nil},
	"no clock read": {func(f *Facts) {
		f.Redis.Clock.Unread, f.NATS.Clock.Unread, f.Server.Clock.Unread = lost, lost, lost
	}, map[Code]Verdict{ClocksApart: Unknown}},

	"a manifest refused":            {func(f *Facts) { f.Manifests[0].Refused = "no" }, map[Code]Verdict{ManifestTaken: Failed}},
	"a manifest with idle fields":   {func(f *Facts) { f.Manifests[0].Idle = "x" }, map[Code]Verdict{ManifestTaken: Warning}},
	"a manifest that was not tried": {func(f *Facts) { f.Manifests[0].Unread = lost }, map[Code]Verdict{ManifestTaken: Unknown}},
}

func notOK(findings []Finding) map[Code]Verdict {
	found := map[Code][]Finding{}
	for _, f := range findings {
		if f.Verdict != OK {
			found[f.Code] = append(found[f.Code], f)
		}
	}
	worst := map[Code]Verdict{}
	for c, of := range found {
		worst[c] = Worst(of)
	}
	return worst
}

func TestJudge(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := good()
			c.change(&f)
			findings := Judge(f)
			want := c.want
			if want == nil {
				want = map[Code]Verdict{}
			}
			if diff := cmp.Diff(want, notOK(findings)); diff != "" {
				t.Errorf("-want +got:\n%s%v", diff, findings)
			}
		})
	}
}

func TestJudge_AGoodInstallationHasEachCodeOnceAtLeast(t *testing.T) {
	findings := Judge(good())
	if bad := notOK(findings); len(bad) > 0 {
		t.Errorf("not OK: %v", bad)
	}
	for _, c := range Codes() {
		if c != InstallRights && !slices.ContainsFunc(findings, func(f Finding) bool { return f.Code == c && f.Category != "" }) {
			t.Errorf("%s has no finding", c)
		}
	}
}

// Each code has a case in which it is not well, and one in which it cannot be told.
func TestCasesCoverTheCodes(t *testing.T) {
	seen := map[Code]map[Verdict]bool{InstallRights: {Failed: true, Unknown: true}} // below
	for _, c := range cases {
		for code, v := range c.want {
			if seen[code] == nil {
				seen[code] = map[Verdict]bool{}
			}
			seen[code][v] = true
		}
	}
	for _, c := range Codes() {
		if !seen[c][Unknown] && c != NATSMaxPayload || !seen[c][Failed] && !seen[c][Warning] {
			t.Errorf("%s: only %v", c, seen[c])
		}
	}
}

func TestJudge_BeforeInstalling(t *testing.T) {
	f := good()
	f.Pre = true
	f.CRDs, f.Operator, f.Policies = CRDs{Unread: lost}, Operator{Unread: lost}, Policies{Unread: lost}
	f.NATS.Streams, f.NATS.Consumers = nil, Consumers{Unread: lost}
	if bad := notOK(Judge(f)); len(bad) > 0 {
		t.Errorf("what is not there yet: %v", bad)
	}
	f.Install.Missing, f.NATS.NoJetStream = []string{"create namespaces"}, "no"
	if diff := cmp.Diff(map[Code]Verdict{InstallRights: Failed, NATSStreams: Failed}, notOK(Judge(f))); diff != "" {
		t.Error(diff)
	}
	f.Install = Rights{Unread: lost}
	if v := notOK(Judge(f))[InstallRights]; v != Unknown {
		t.Errorf("rights unread: %s", v)
	}
}

// mutation: a rank in another order makes this fail.
func TestOutcome(t *testing.T) {
	for want, verdicts := range map[Verdict][]Verdict{
		OK: {OK, Warning}, Unknown: {OK, Unknown, Warning}, Failed: {Unknown, Failed, OK},
	} {
		var findings []Finding
		for _, v := range verdicts {
			findings = append(findings, Finding{Verdict: v})
		}
		if got := Outcome(findings); got != want {
			t.Errorf("%v: %s, want %s", verdicts, got, want)
		}
	}
	if Outcome(nil) != OK {
		t.Error("no findings are not OK")
	}
}

// mutation: Differ that leaves out keys which only one side has, or that takes a property named
// description for prose, makes this fail.
func TestDiffer(t *testing.T) {
	type object = map[string]any
	for name, c := range map[string]struct {
		want, got any
		paths     []string
	}{
		"equal":                         {object{"a": []any{1.0}}, object{"a": []any{1.0}}, nil},
		"another value":                 {object{"a": object{"b": 1.0}}, object{"a": object{"b": 2.0}}, []string{".a.b"}},
		"one less":                      {object{"a": 1.0}, object{}, []string{".a"}},
		"one more":                      {object{}, object{"a": 1.0}, []string{".a"}},
		"a shorter list":                {object{"a": []any{1.0, 2.0}}, object{"a": []any{1.0}}, []string{".a"}},
		"in a list":                     {object{"a": []any{1.0, 2.0}}, object{"a": []any{1.0, 3.0}}, []string{".a[1]"}},
		"another description":           {object{"description": "x"}, object{"description": "y"}, nil},
		"no description":                {object{"description": "x"}, object{}, nil},
		"a property called description": {object{"description": object{"type": "x"}}, object{"description": object{"type": "y"}}, []string{".description.type"}},
		"another kind of value":         {object{"a": object{}}, object{"a": "x"}, []string{".a"}},
	} {
		if diff := cmp.Diff(c.paths, Differ(c.want, c.got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// mutation: a policy of a file without a time of creation would be the oldest, and win.
func TestJudge_APolicyOfAFileIsTheYoungest(t *testing.T) {
	f := good()
	p := lockPolicy("a-file", 0, "c")
	p.CreationTimestamp = metav1.Time{}
	f.Manifests = []Manifest{{Name: "LockPolicy/a-file", Policy: &p}}
	for _, found := range Judge(f) {
		if found.Code == ClassConflicts && found.Message != `LockPolicy a-file lists class "c" in vain: the older LockPolicy coalesced has it` {
			t.Error(found.Message)
		}
	}
}
