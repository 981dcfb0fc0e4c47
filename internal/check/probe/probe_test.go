// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	k8sadmission "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/testenv"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// bad is what failed or could not be told.
func (i *installation) bad() (map[check.Code]check.Verdict, []check.Finding) {
	i.t.Helper()
	facts, err := Gather(i.t.Context(), i.options())
	if err != nil {
		i.t.Fatal(err)
	}
	findings := check.Judge(facts)
	bad := map[check.Code]check.Verdict{}
	for _, f := range findings {
		if f.Verdict == check.Failed || f.Verdict == check.Unknown && bad[f.Code] == "" {
			bad[f.Code] = f.Verdict
		}
	}
	return bad, findings
}

func (i *installation) expect(want map[check.Code]check.Verdict) {
	i.t.Helper()
	bad, findings := i.bad()
	if diff := cmp.Diff(want, bad); diff != "" {
		i.t.Errorf("-want +got:\n%s\n%+v", diff, findings)
	}
}

func (i *installation) create(o client.Object) {
	i.t.Helper()
	if err := suite.client.Create(i.t.Context(), o); err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() {
		if err := client.IgnoreNotFound(suite.client.Delete(context.WithoutCancel(i.t.Context()), o)); err != nil {
			i.t.Error(err)
		}
	})
}

// without deletes an object until the test ends.
func (i *installation) without(o client.Object) {
	i.t.Helper()
	if err := suite.client.Get(i.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		i.t.Fatal(err)
	}
	if err := suite.client.Delete(i.t.Context(), o); err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() {
		o.SetResourceVersion("")
		o.SetUID("")
		if err := suite.client.Create(context.WithoutCancel(i.t.Context()), o); err != nil {
			i.t.Error(err)
		}
	})
}

// changed updates an object until the test ends.
func changed[T client.Object](i *installation, o T, change func(T)) {
	i.t.Helper()
	key := client.ObjectKeyFromObject(o)
	if err := suite.client.Get(i.t.Context(), key, o); err != nil {
		i.t.Fatal(err)
	}
	before, _ := o.DeepCopyObject().(T)
	change(o)
	if err := suite.client.Update(i.t.Context(), o); err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() {
		ctx := context.WithoutCancel(i.t.Context())
		if err := suite.client.Get(ctx, key, o); err != nil {
			i.t.Error(err)
			return
		}
		before.SetResourceVersion(o.GetResourceVersion())
		if err := suite.client.Update(ctx, before); err != nil {
			i.t.Error(err)
		}
	})
}

func clusterWide[T client.Object](o T, name string) T {
	o.SetName(name)
	return o
}

func inOperator[T client.Object](o T, name string) T {
	o.SetName(name)
	o.SetNamespace(shippedNamespace)
	return o
}

func TestGather_AGoodInstallation(t *testing.T) {
	i := wellInstalled(t)
	stateBefore := i.stores()
	i.expect(map[check.Code]check.Verdict{})
	if i.seen.asked < 50 {
		t.Errorf("the recorder saw %d requests only", i.seen.asked)
	}
	if len(i.seen.writes) > 0 {
		t.Errorf("written: %v", i.seen.writes)
	}
	if diff := cmp.Diff(stateBefore, i.stores()); diff != "" {
		t.Errorf("NATS or Redis was changed:\n%s", diff)
	}
}

// stores is what NATS and Redis have.
func (i *installation) stores() map[string]any {
	i.t.Helper()
	all := map[string]any{"keys": i.redis.Client().DBSize(i.t.Context()).Val()}
	for s := range i.js.ListStreams(i.t.Context()).Info() {
		all[s.Config.Name] = []any{s.State.LastSeq, s.State.Msgs, s.State.Consumers, s.Created}
	}
	info := i.redis.Client().Info(i.t.Context(), "persistence").Val()
	_, dirty, _ := strings.Cut(info, "rdb_changes_since_last_save:")
	all["dirty"], _, _ = strings.Cut(dirty, "\r\n")
	return all
}

const (
	failed  = check.Failed
	unknown = check.Unknown
)

// leaseElsewhere makes a Lease of a replica in another namespace.
func (i *installation) leaseElsewhere() {
	i.t.Helper()
	lease := memberLease()
	lease.Namespace = "default"
	i.create(lease)
}

// entitle gives an operator's account in another namespace the operator's role.
func (i *installation) entitle(namespace string) {
	i.t.Helper()
	b := clusterWide(&rbacv1.ClusterRoleBinding{}, "syncopate-elsewhere")
	b.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: operatorName}
	b.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: operatorName}}
	i.create(b)
	i.eventually("the authorizer sees it", func() error {
		if bad, _ := i.bad(); bad[check.OneOperator] != failed {
			return errors.New("not yet")
		}
		return nil
	})
}

// Each break gives its own code, and no other.
func TestGather_Broken(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(*installation)
		want   map[check.Code]check.Verdict
	}{
		"a CRD with a rule removed": {func(i *installation) {
			changed(i, clusterWide(&apiextensionsv1.CustomResourceDefinition{}, "workflowruns.syncopate.dev"), func(c *apiextensionsv1.CustomResourceDefinition) {
				s := c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
				s.XValidations = s.XValidations[1:]
				c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"] = s
			})
		}, map[check.Code]check.Verdict{check.CRDsEqual: failed}},
		"a binding is missing": {func(i *installation) {
			i.without(clusterWide(&admissionv1.ValidatingAdmissionPolicyBinding{}, "syncopate-status"))
		}, map[check.Code]check.Verdict{check.AdmissionPolicies: failed}},
		// mutation: admission without schedules/policy.yaml makes this fail.
		"the binding of schedules is missing": {func(i *installation) {
			i.without(clusterWide(&admissionv1.ValidatingAdmissionPolicyBinding{}, "syncopate-schedules"))
		}, map[check.Code]check.Verdict{check.AdmissionPolicies: failed}},
		// mutation: rights, or policy, with operatorName for the account makes this fail.
		"an account of another name": {func(i *installation) {
			i.account("robot")
			i.eventually("the authorizer sees it", func() error {
				if bad, _ := i.bad(); bad[check.OperatorRights] != "" {
					return errors.New("not yet")
				}
				return nil
			})
		}, map[check.Code]check.Verdict{}},
		"a binding only warns": {func(i *installation) {
			changed(i, clusterWide(&admissionv1.ValidatingAdmissionPolicyBinding{}, "syncopate-approver"), func(b *admissionv1.ValidatingAdmissionPolicyBinding) {
				b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
			})
		}, map[check.Code]check.Verdict{check.AdmissionPolicies: failed}},
		"a policy that leaves a namespace out": {func(i *installation) {
			i.narrowed(func(m *admissionv1.MatchResources) { m.NamespaceSelector = notIn("team-a") })
		}, map[check.Code]check.Verdict{check.AdmissionPolicies: failed}},
		"a policy that leaves runs out by their labels": {func(i *installation) {
			i.narrowed(func(m *admissionv1.MatchResources) { m.ObjectSelector = notIn("team-a") })
		}, map[check.Code]check.Verdict{check.AdmissionPolicies: failed}},
		"a policy with a rule of what it leaves out": {func(i *installation) {
			i.narrowed(func(m *admissionv1.MatchResources) {
				out := m.ResourceRules[0]
				out.ResourceNames = []string{"report"}
				m.ExcludeResourceRules = []admissionv1.NamedRuleWithOperations{out}
			})
		}, map[check.Code]check.Verdict{check.AdmissionPolicies: failed}},
		"a policy for the one version": {func(i *installation) {
			i.narrowed(func(m *admissionv1.MatchResources) { m.MatchPolicy = new(admissionv1.Exact) })
		}, map[check.Code]check.Verdict{check.AdmissionPolicies: failed}},
		"a policy for what is of no namespace": {func(i *installation) {
			i.narrowed(func(m *admissionv1.MatchResources) { m.ResourceRules[0].Scope = new(admissionv1.ClusterScope) })
		}, map[check.Code]check.Verdict{check.AdmissionPolicies: failed}},
		// mutation: powerless that takes a binding for a part for one of all makes this fail.
		"a binding that leaves a namespace out": {func(i *installation) {
			changed(i, clusterWide(&admissionv1.ValidatingAdmissionPolicyBinding{}, "syncopate-status"), func(b *admissionv1.ValidatingAdmissionPolicyBinding) {
				b.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: notIn("team-a")}
			})
		}, map[check.Code]check.Verdict{check.AdmissionPolicies: failed}},
		"a further binding for one namespace": {func(i *installation) {
			b := clusterWide(&admissionv1.ValidatingAdmissionPolicyBinding{}, "audit-team-a")
			b.Spec.PolicyName, b.Spec.ValidationActions = "syncopate-status", []admissionv1.ValidationAction{admissionv1.Audit}
			b.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "team-a"}}}
			i.create(b)
		}, map[check.Code]check.Verdict{}},
		"a role without a right": {func(i *installation) {
			changed(i, clusterWide(&rbacv1.ClusterRole{}, "syncopate"), func(r *rbacv1.ClusterRole) { r.Rules = r.Rules[:len(r.Rules)-1] })
			i.eventually("the authorizer sees it", func() error {
				if bad, _ := i.bad(); bad[check.OperatorRights] != failed {
					return errors.New("not yet")
				}
				return nil
			})
		}, map[check.Code]check.Verdict{check.OperatorRights: failed}},
		"a replica of another version": {func(i *installation) {
			p := inOperator(&corev1.Pod{}, "pod-0")
			if err := suite.client.Get(i.t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				i.t.Fatal(err)
			}
			other := inOperator(&corev1.Pod{}, "pod-other")
			other.Labels, other.Spec = p.Labels, p.Spec
			other.Spec.Containers[0].Image = "syncopate:v0"
			i.create(other)
		}, map[check.Code]check.Verdict{check.OperatorVersions: failed}},
		"a Lease is gone": {func(i *installation) {
			i.without(memberLease())
		}, map[check.Code]check.Verdict{check.PartitionOwners: failed}},
		// mutation: elsewhere that asks about no rights makes this fail.
		"an operator in another namespace": {func(i *installation) {
			i.leaseElsewhere()
			i.entitle("default")
		}, map[check.Code]check.Verdict{check.OneOperator: failed}},
		// mutation: lookNATS that leaves out what the streams name makes this fail.
		"an operator in another namespace, of whom the streams are": {func(i *installation) {
			i.leaseElsewhere()
			s, err := i.js.Stream(i.t.Context(), protocol.Names{Prefix: protocol.DefaultPrefix}.JobsStream())
			if err != nil {
				i.t.Fatal(err)
			}
			c := s.CachedInfo().Config
			c.Metadata = map[string]string{"syncopate.dev/namespace": "default"}
			if _, err := i.js.UpdateStream(i.t.Context(), c); err != nil {
				i.t.Fatal(err)
			}
		}, map[check.Code]check.Verdict{check.OneOperator: failed}},
		// The role edit takes no more than that. mutation: a Lease that fails the check by itself
		// makes this fail.
		"a Lease that a tenant made": {func(i *installation) { i.leaseElsewhere() }, map[check.Code]check.Verdict{}},
		"a leader in another namespace": {func(i *installation) {
			lease := memberLease()
			lease.Namespace, lease.Name, lease.Labels = "default", ownership.LeaderLeaseName, nil
			i.create(lease)
			i.entitle("default")
		}, map[check.Code]check.Verdict{check.OneOperator: failed}},
		// Who steps down leaves the Lease to nobody.
		"a Lease of nobody in another namespace": {func(i *installation) {
			lease := memberLease()
			lease.Namespace, lease.Name, lease.Labels = "default", ownership.LeaderLeaseName, nil
			lease.Spec.HolderIdentity = new("")
			i.create(lease)
		}, map[check.Code]check.Verdict{}},
		"a partition without an owner": {func(i *installation) {
			object, err := ownedBy(5)
			if err != nil {
				i.t.Fatal(err)
			}
			changed(i, inOperator(&corev1.ConfigMap{}, object.Name), func(c *corev1.ConfigMap) { c.Data = object.Data })
		}, map[check.Code]check.Verdict{check.PartitionOwners: failed}},
		"a conflict of classes": {func(i *installation) {
			i.create(classes("one", "a", "b"))
			i.create(classes("two", "c", "b"))
		}, map[check.Code]check.Verdict{check.ClassConflicts: failed}},
		"a conflict with a file, and a file that is refused": {func(i *installation) {
			i.create(classes("one", "a", "b"))
			p := classes("file", "b")
			p.Spec.RunLock.TTLSeconds = 1
			i.files = []client.Object{p}
		}, map[check.Code]check.Verdict{check.ClassConflicts: failed, check.ManifestTaken: failed, check.PolicyArithmetic: failed}},
		"a Semaphore in a file": {func(i *installation) { i.files = []client.Object{semaphore(3)} }, map[check.Code]check.Verdict{}},
		"a Semaphore in a file, and it is refused": {func(i *installation) {
			i.files = []client.Object{semaphore(-1)}
		}, map[check.Code]check.Verdict{check.ManifestTaken: failed}},
		"runs, a Workflow and a Schedule in a file": {func(i *installation) {
			i.files = sampled(i.t, "diamond.yaml", "fan-out.yaml", "template.yaml", "schedule.yaml", "sign-off.yaml")
		}, map[check.Code]check.Verdict{}},
		// mutation: manifests that only makes a dry run makes this fail.
		"a run in a file that would end as InvalidSpec": {func(i *installation) {
			i.files = sampled(i.t, "diamond.yaml")
			for _, o := range i.files {
				if run, ok := o.(*v1alpha1.WorkflowRun); ok {
					run.Spec.Steps[0].DependsOn = []string{run.Spec.Steps[len(run.Spec.Steps)-1].Name}
				}
			}
		}, map[check.Code]check.Verdict{check.ManifestTaken: failed}},
		"Reject without a webhook": {func(i *installation) {
			p := classes("one", "a")
			p.Spec.Admission.OnLimit = v1alpha1.OnLimitReject
			p.Spec.Admission.MaxConcurrentRuns = new(int32(1))
			i.create(p)
		}, map[check.Code]check.Verdict{check.RejectUnguarded: failed}},
		"a webhook in order":          {func(i *installation) { i.hook(60*24*time.Hour, 1) }, map[check.Code]check.Verdict{}},
		"an expired CA bundle":        {func(i *installation) { i.hook(-time.Hour, 1) }, map[check.Code]check.Verdict{check.WebhookAuthority: failed}},
		"a webhook without endpoints": {func(i *installation) { i.hook(60*24*time.Hour, 0) }, map[check.Code]check.Verdict{check.WebhookReached: failed}},
		"a webhook of which no replica serves": {func(i *installation) {
			i.hook(60*24*time.Hour, 2)
			changed(i, inOperator(&discoveryv1.EndpointSlice{}, "syncopate-webhook-1"), func(s *discoveryv1.EndpointSlice) {
				// mutation: a count of all endpoints, or of those that say that they are ready,
				// makes this fail.
				s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: new(true), Serving: new(false)}
				s.Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(true)}
			})
		}, map[check.Code]check.Verdict{check.WebhookReached: failed}},
		// mutation: try with the class default, whatever the webhook is asked for, makes this fail.
		"a webhook for some classes that is not reached": {func(i *installation) {
			i.guard("object.spec.workloadClass in ['payments', 'ledger']", admissionv1.WebhookClientConfig{})
		}, map[check.Code]check.Verdict{check.WebhookReached: failed}},
		// mutation: classesOf that passes over a condition it does not understand makes this fail.
		"a webhook for runs that check cannot name": {func(i *installation) {
			i.guard("object.metadata.name.startsWith('payment')", admissionv1.WebhookClientConfig{})
		}, map[check.Code]check.Verdict{check.WebhookReached: unknown}},
		// mutation: RoundTrip that leaves Retry-After to client-go, or try that takes no answer but
		// 429 for one of the webhook, makes one of these fail.
		"a webhook for some classes that has no room": {func(i *installation) {
			i.guard(`object.spec.workloadClass in ["payments"]`, i.refusing(http.StatusTooManyRequests))
		}, map[check.Code]check.Verdict{}},
		"a webhook for some classes whose Redis is away": {func(i *installation) {
			i.guard(`object.spec.workloadClass in ["payments"]`, i.refusing(http.StatusServiceUnavailable))
		}, map[check.Code]check.Verdict{}},
		"a stream with other subjects": {func(i *installation) {
			s, err := i.js.Stream(i.t.Context(), "SYNCOPATE_JOBS")
			if err != nil {
				i.t.Fatal(err)
			}
			config := s.CachedInfo().Config
			config.Subjects = []string{"syncopate.jobs.only"}
			if _, err := i.js.UpdateStream(i.t.Context(), config); err != nil {
				i.t.Fatal(err)
			}
		}, map[check.Code]check.Verdict{check.NATSDrift: failed}},
		"a consumer is gone": {func(i *installation) {
			if err := i.js.DeleteConsumer(i.t.Context(), "SYNCOPATE_RESULTS", "syncopate-results-p07"); err != nil {
				i.t.Fatal(err)
			}
		}, map[check.Code]check.Verdict{check.NATSConsumers: failed}},
		"a stream is gone": {func(i *installation) {
			if err := i.js.DeleteStream(i.t.Context(), "SYNCOPATE_CONTROL"); err != nil {
				i.t.Fatal(err)
			}
		}, map[check.Code]check.Verdict{check.NATSStreams: failed}},
		"no NATS": {func(i *installation) { i.nats.Shutdown() }, map[check.Code]check.Verdict{
			check.NATSVersion: unknown, check.NATSStreams: unknown, check.NATSDrift: unknown, check.NATSReplicas: unknown, check.NATSMaxPayload: unknown,
			check.NATSConsumers: unknown, check.NATSRights: unknown,
		}},
		"a Redis that evicts": {func(i *installation) {
			if err := i.redis.Client().ConfigSet(i.t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
				i.t.Fatal(err)
			}
		}, map[check.Code]check.Verdict{check.RedisEviction: failed}},
		"no Redis": {func(i *installation) { i.redis.Stop() }, map[check.Code]check.Verdict{
			check.RedisVersion: unknown, check.RedisEviction: unknown, check.RedisPersistence: unknown, check.RedisReplicas: unknown, check.RedisLatency: unknown,
		}},
		"a clock that is off": {func(i *installation) {
			i.clock = clocktesting.NewFakePassiveClock(time.Now().Add(-10 * time.Minute))
		}, map[check.Code]check.Verdict{check.ClocksApart: failed}},
	} {
		t.Run(name, func(t *testing.T) {
			i := wellInstalled(t)
			c.damage(i)
			i.expect(c.want)
			if len(i.seen.writes) > 0 {
				t.Errorf("written: %v", i.seen.writes)
			}
		})
	}
}

// narrowed has the policy about status look at less.
func (i *installation) narrowed(change func(*admissionv1.MatchResources)) {
	i.t.Helper()
	changed(i, clusterWide(&admissionv1.ValidatingAdmissionPolicy{}, "syncopate-status"), func(p *admissionv1.ValidatingAdmissionPolicy) {
		change(p.Spec.MatchConstraints)
	})
}

func notIn(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{name}},
	}}
}

// account installs the operator with an account of another name, as the chart does.
func (i *installation) account(name string) {
	i.t.Helper()
	i.t.Cleanup(func() { // after the Deployment is as before: its controller has seen that
		ctx, d := context.WithoutCancel(i.t.Context()), inOperator(&appsv1.Deployment{}, operatorName)
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			i.t.Error(err)
			return
		}
		d.Status.ObservedGeneration = d.Generation
		if err := suite.client.Status().Update(ctx, d); err != nil {
			i.t.Error(err)
		}
	})
	changed(i, inOperator(&appsv1.Deployment{}, operatorName), func(d *appsv1.Deployment) { d.Spec.Template.Spec.ServiceAccountName = name })
	changed(i, clusterWide(&rbacv1.ClusterRoleBinding{}, operatorName), func(b *rbacv1.ClusterRoleBinding) { b.Subjects[0].Name = name })
	changed(i, inOperator(&rbacv1.RoleBinding{}, operatorName), func(b *rbacv1.RoleBinding) { b.Subjects[0].Name = name })
	i.policyNames(name)
}

// policyNames has the policy about status name another account.
func (i *installation) policyNames(name string) {
	i.t.Helper()
	changed(i, clusterWide(&admissionv1.ValidatingAdmissionPolicy{}, "syncopate-status"), func(p *admissionv1.ValidatingAdmissionPolicy) {
		v := &p.Spec.Validations[0]
		v.Expression = strings.ReplaceAll(v.Expression, userOf(shippedNamespace, operatorName), userOf(shippedNamespace, name))
	})
}

// Without its Deployment nobody knows the operator's account, so nothing is wrong with another one.
//
// mutation: rights that takes operatorName for an account that is not known, or policy that says of
// such a one that it asks something else, makes this fail.
func TestGather_AnAccountThatIsNotKnown(t *testing.T) {
	i := wellInstalled(t)
	i.policyNames("robot")
	o := i.options()
	o.Operator = "nowhere"
	facts, err := Gather(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range check.Judge(facts) {
		if (f.Code == check.AdmissionPolicies || f.Code == check.OperatorRights) && (f.Verdict != unknown || f.Hint == "") {
			t.Errorf("%+v", f)
		}
	}
	i.without(clusterWide(&admissionv1.ValidatingAdmissionPolicyBinding{}, "syncopate-status"))
	if facts, err = Gather(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(check.Judge(facts), func(f check.Finding) bool { return f.Code == check.AdmissionPolicies && f.Verdict == failed }) {
		t.Errorf("no binding, and nothing failed: %+v", facts.Admission)
	}
}

func semaphore(permits int32) *v1alpha1.Semaphore {
	s := clusterWide(&v1alpha1.Semaphore{}, "printers")
	s.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Semaphore"}
	s.Spec.Permits = permits
	return s
}

func classes(name string, classes ...string) *v1alpha1.LockPolicy {
	p := clusterWide(&v1alpha1.LockPolicy{}, name)
	p.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LockPolicy"}
	p.Spec.WorkloadClasses = classes
	return p
}

// hook installs the webhook's configuration, with an authority that is valid for so long and a
// Service with so many endpoints. Nobody is there; failurePolicy Ignore lets runs pass.
func (i *installation) hook(valid time.Duration, endpoints int) {
	i.t.Helper()
	objects, err := documents("../../../config/webhook/base/configuration.yaml")
	if err != nil {
		i.t.Fatal(err)
	}
	for _, o := range objects {
		i.create(o)
	}
	changed(i, clusterWide(&admissionv1.ValidatingWebhookConfiguration{}, operatorName), func(c *admissionv1.ValidatingWebhookConfiguration) {
		c.Webhooks[0].ClientConfig.CABundle = authority(i.t, time.Now().Add(valid))
	})
	slice := inOperator(&discoveryv1.EndpointSlice{}, "syncopate-webhook-1")
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "syncopate-webhook"}
	slice.AddressType = discoveryv1.AddressTypeIPv4
	for n := range endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprint("10.0.0.", n+1)}})
	}
	i.create(slice)
}

// guard has the webhook asked for some runs, with failurePolicy Fail. Nobody is there unless where
// says so.
func (i *installation) guard(condition string, where admissionv1.WebhookClientConfig) {
	i.t.Helper()
	i.hook(60*24*time.Hour, 1)
	changed(i, clusterWide(&admissionv1.ValidatingWebhookConfiguration{}, operatorName), func(c *admissionv1.ValidatingWebhookConfiguration) {
		h := &c.Webhooks[0]
		h.FailurePolicy = new(admissionv1.Fail)
		h.MatchConditions = append(h.MatchConditions, admissionv1.MatchCondition{Name: "class-rejects", Expression: condition})
		if where.URL != nil {
			h.ClientConfig = where
		}
	})
	k, err := newKube(suite.config)
	if err != nil {
		i.t.Fatal(err)
	}
	i.eventually("the API server asks the webhook", func() error {
		run := &v1alpha1.WorkflowRun{}
		run.Namespace, run.Name, run.Spec.WorkloadClass = "default", "payment", "payments"
		run.Spec.Steps = []v1alpha1.Step{{Name: "check", Job: &v1alpha1.Job{Topic: "t"}}}
		if err := k.Create(i.t.Context(), run, client.DryRunAll); err == nil {
			return errors.New("not asked")
		}
		return nil
	})
}

// refusing is where a webhook answers each call with a code, and with the wish to be asked again.
func (i *installation) refusing(code int32) admissionv1.WebhookClientConfig {
	i.t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review k8sadmission.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		const seconds = 3
		review.Response = &k8sadmission.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{
			Code: code, Message: "no", Details: &metav1.StatusDetails{RetryAfterSeconds: seconds},
		}}
		_ = json.NewEncoder(w).Encode(review)
	}))
	i.t.Cleanup(server.Close)
	return admissionv1.WebhookClientConfig{
		URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
}

func authority(t *testing.T, until time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: until.Add(-365 * 24 * time.Hour), NotAfter: until, IsCA: true}
	raw, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

// Neither the rule nor the policy: then a stale writer would win.
func TestGather_ALowerFenceIsTaken(t *testing.T) {
	i := wellInstalled(t)
	changed(i, clusterWide(&apiextensionsv1.CustomResourceDefinition{}, "workflowruns.syncopate.dev"), func(c *apiextensionsv1.CustomResourceDefinition) {
		s := c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
		s.XValidations = nil
		c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"] = s
	})
	i.without(clusterWide(&admissionv1.ValidatingAdmissionPolicyBinding{}, "syncopate-status"))
	i.eventually("the API server takes it", func() error {
		if bad, findings := i.bad(); bad[check.LowerFence] != failed {
			_ = findings
			return errors.New("refused")
		}
		return nil
	})
	i.expect(map[check.Code]check.Verdict{check.CRDsEqual: failed, check.AdmissionPolicies: failed, check.LowerFence: failed})
}

func TestGather_BeforeInstalling(t *testing.T) {
	i := wellInstalled(t)
	o := i.options()
	o.Pre, o.Operator = true, "nowhere"
	facts, err := Gather(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if findings := check.Judge(facts); check.Outcome(findings) != check.OK {
		t.Errorf("%+v", findings)
	}
	o.Config.Impersonate.UserName = "somebody"
	if facts, err = Gather(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if len(facts.Install.Missing) != facts.Install.Asked || facts.Install.Asked == 0 {
		t.Errorf("somebody may do something: %+v", facts.Install)
	}
}

// Whoever may do nothing learns what could not be told, and nothing fails.
func TestGather_WithoutRights(t *testing.T) {
	i := wellInstalled(t)
	o := i.options()
	o.Config.Impersonate.UserName = "somebody"
	facts, err := Gather(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	findings := check.Judge(facts)
	if check.Outcome(findings) != check.Unknown {
		t.Errorf("%+v", findings)
	}
	for _, f := range findings {
		if f.Code == check.CRDsEqual && f.Hint == "" {
			t.Errorf("no hint: %+v", f)
		}
	}
}

// silent takes connections and never answers.
func silent(t *testing.T) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// It says less than 10 s, and takes at most 8. Machines that are busy with other tests may make
// that several times as long; without its limits it would not end in a test's life.
//
// mutation: within that gives a category the context of the whole makes this fail.
func TestGather_EndsSoonWhateverIsAway(t *testing.T) {
	const refused, busy = "127.0.0.1:1", 60 * time.Second
	hangs := silent(t)
	well := wellInstalled(t)
	for name, damage := range map[string]func(*Options){
		"nothing":       func(*Options) {},
		"NATS refuses":  func(o *Options) { o.NATS.URL = "nats://" + refused },
		"NATS hangs":    func(o *Options) { o.NATS.URL = "nats://" + hangs },
		"Redis refuses": func(o *Options) { o.Redis.Addrs = []string{refused} },
		"Redis hangs":   func(o *Options) { o.Redis.Addrs = []string{hangs} },
		"API refuses":   func(o *Options) { o.Config = &rest.Config{Host: "http://" + refused} },
		"API hangs":     func(o *Options) { o.Config = &rest.Config{Host: "http://" + hangs} },
		"everything hangs": func(o *Options) {
			o.Config, o.NATS.URL, o.Redis.Addrs = &rest.Config{Host: "http://" + hangs}, "nats://"+hangs, []string{hangs}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := well.options()
			o.Config = rest.CopyConfig(suite.config) // recorders are for one at a time
			damage(&o)
			ctx, cancel := context.WithTimeout(t.Context(), 2*busy)
			defer cancel()
			begin := time.Now()
			facts, err := Gather(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(begin)
			t.Logf("took %s", took)
			if took > busy {
				t.Errorf("it took %s", took)
			}
			want := check.Unknown
			if name == "nothing" {
				want = check.OK
			}
			if got := check.Outcome(check.Judge(facts)); got != want {
				t.Errorf("%s: %+v", got, check.Judge(facts))
			}
			if away := facts.NATS.Hint != "" || facts.Redis.Hint != ""; name == "everything hangs" && !away {
				t.Errorf("no hint: %+v", facts)
			}
		})
	}
}

func TestTheGuardRefusesWrites(t *testing.T) {
	k, err := newKube(suite.config)
	if err != nil {
		t.Fatal(err)
	}
	p := classes("written", "x")
	for what, do := range map[string]func() error{
		"create": func() error { return k.Create(t.Context(), p) },
		"update": func() error { return k.Update(t.Context(), p) },
		"patch": func() error {
			return k.Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", []byte("{}")))
		},
		"delete": func() error { return k.Delete(t.Context(), p, client.DryRunAll) },
	} {
		if err := do(); !errors.Is(err, errWrite) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := k.Create(t.Context(), p, client.DryRunAll); err != nil {
		t.Errorf("a dry run: %v", err)
	}
	for url, want := range map[string]bool{
		"/apis/authorization.k8s.io/v1/subjectaccessreviews": true, "/apis/authorization.k8s.io.evil/v1/x": false, "/api/v1/pods?dryRun=None": false,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x"+url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if harmless(req) != want {
			t.Errorf("%s: %v", url, !want)
		}
	}
}

// sampled are the objects of some of the samples.
func sampled(t *testing.T, names ...string) (all []client.Object) {
	t.Helper()
	for _, name := range names {
		data, err := os.ReadFile(testenv.Root("config", "samples", name))
		if err != nil {
			t.Fatal(err)
		}
		objects, err := Manifests(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, objects...)
	}
	return all
}
