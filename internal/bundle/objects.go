// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Policy is a LockPolicy. Its spec is numbers, words of the API, and names of classes, tenants and
// topics.
type Policy struct {
	Name       string                  `json:"name"`
	Generation int64                   `json:"generation"`
	Spec       v1alpha1.LockPolicySpec `json:"spec"`
	Conditions []Condition             `json:"conditions,omitempty"`
}

// PolicyOf keeps of a policy what may be shown.
func PolicyOf(p *v1alpha1.LockPolicy) Policy {
	out := Policy{Name: p.Name, Generation: p.Generation, Spec: p.Spec}
	if p.Status != nil { // the operator has not seen it yet
		out.Conditions = conditionsOf(p.Status.Conditions)
	}
	return out
}

func conditionsOf(list []metav1.Condition) (all []Condition) {
	for _, c := range list {
		all = append(all, Condition{c.Type, string(c.Status), c.Reason, c.LastTransitionTime})
	}
	return all
}

// Deployment is that of the operator.
type Deployment struct {
	Name      string      `json:"name"`
	Replicas  *int32      `json:"replicas,omitempty"`
	Ready     int32       `json:"ready"`
	Updated   int32       `json:"updated"`
	Container []Container `json:"containers"`
}

// Container has arguments without values that may be secret, and the names of variables.
type Container struct {
	Name      string                      `json:"name"`
	Image     string                      `json:"image"`
	Args      []string                    `json:"args,omitempty"`
	Env       []string                    `json:"env,omitempty"`
	Resources corev1.ResourceRequirements `json:"resources"`
}

// DeploymentOf keeps of a Deployment what may be shown.
func DeploymentOf(d *appsv1.Deployment) Deployment {
	out := Deployment{Name: d.Name, Replicas: d.Spec.Replicas, Ready: d.Status.ReadyReplicas, Updated: d.Status.UpdatedReplicas}
	for _, c := range d.Spec.Template.Spec.Containers {
		one := Container{Name: c.Name, Image: c.Image, Args: argsOf(c.Args), Resources: corev1.ResourceRequirements{Limits: c.Resources.Limits, Requests: c.Resources.Requests}}
		for _, e := range c.Env {
			one.Env = append(one.Env, e.Name)
		}
		out.Container = append(out.Container, one)
	}
	return out
}

// shown are the arguments whose values say nothing but numbers and words of the operator.
func shown() []string {
	return []string{
		"ownership", "ownership-lease", "leader-elect", "leader-lease", "max-concurrent-runs", "max-concurrent-writes", "inbox-limit", "inbox-bytes", "kube-api-qps", "memory-percent",
		"require-allow-lists", "exact-delays", "step-events", "nats-prefix", "nats-replicas", "nats-memory-storage", "nats-storage", "nats-max-ack-pending", "nats-max-topics",
		"nats-result-ack-pending", "redis-tls", "redis-cluster",
	}
}

// argsOf leaves out the values of all other arguments, as addresses, which may have passwords.
func argsOf(args []string) (all []string) {
	for _, a := range args {
		name, _, valued := strings.Cut(a, "=")
		switch {
		case !strings.HasPrefix(a, "-"): // the value of the one before
			all = append(all, "(left out)")
		case valued && !slices.Contains(shown(), strings.TrimLeft(name, "-")):
			all = append(all, name+"=(left out)")
		default:
			all = append(all, a)
		}
	}
	return all
}

// Pod is a replica of the operator.
type Pod struct {
	Name     string      `json:"name"`
	Phase    string      `json:"phase"`
	Created  metav1.Time `json:"created"`
	Restarts int32       `json:"restarts"`
	Ended    []string    `json:"ended,omitempty"` // why containers ended before: a reason, and the exit code is in it
}

// PodOf keeps of a pod what may be shown.
func PodOf(p *corev1.Pod) Pod {
	out := Pod{Name: p.Name, Phase: string(p.Status.Phase), Created: p.CreationTimestamp}
	for _, c := range p.Status.ContainerStatuses {
		out.Restarts += c.RestartCount
		if t := c.LastTerminationState.Terminated; t != nil {
			out.Ended = append(out.Ended, t.Reason)
		}
	}
	return out
}

// Lease is one of the operator's.
type Lease struct {
	Name    string            `json:"name"`
	Holder  string            `json:"holder,omitempty"`
	Renewed *metav1.MicroTime `json:"renewed,omitempty"`
	Seconds *int32            `json:"seconds,omitempty"`
}

// LeaseOf keeps of a Lease what may be shown.
func LeaseOf(l *coordinationv1.Lease) Lease {
	out := Lease{Name: l.Name, Renewed: l.Spec.RenewTime, Seconds: l.Spec.LeaseDurationSeconds}
	if l.Spec.HolderIdentity != nil {
		out.Holder = *l.Spec.HolderIdentity
	}
	return out
}
