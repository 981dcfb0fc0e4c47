// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/check"
)

const (
	// operatorName is that of the Deployment and of the webhook, and in the manifests that of the
	// operator's account; the chart may give it another one.
	operatorName = "syncopate"
	managerName  = "manager"
	maxPods      = 100
)

// operator reads the Deployment and the images of its pods.
func (k *kube) operator(ctx context.Context, namespace string) check.Operator {
	d := &appsv1.Deployment{}
	err := k.Get(ctx, client.ObjectKey{Namespace: namespace, Name: operatorName}, d)
	switch {
	case apierrors.IsNotFound(err):
		return check.Operator{Missing: true, SettingsUnknown: true}
	case err != nil:
		return check.Operator{Unread: unread("read the Deployment of the operator", err), SettingsUnknown: true}
	}
	o := check.Operator{
		Wanted: 1, Ready: d.Status.ReadyReplicas, Settings: settings(arguments(d)),
		Account: cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default"),
		Rolling: d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < d.Status.Replicas,
	}
	if d.Spec.Replicas != nil {
		o.Wanted = *d.Spec.Replicas
	}
	pods := &corev1.PodList{}
	if err := k.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels), client.Limit(maxPods)); err != nil {
		o.PodsUnread = unread("list the pods of the operator", err)
		return o
	}
	for i := range pods.Items {
		if image := imageOf(&pods.Items[i]); image != "" && !slices.Contains(o.Images, image) {
			o.Images = append(o.Images, image)
		}
	}
	slices.Sort(o.Images)
	return o
}

// userOf is what admission and rights call an account.
func userOf(namespace, account string) string {
	return "system:serviceaccount:" + namespace + ":" + account
}

// accountUnknown is why what is about the operator's account cannot be told.
func accountUnknown() check.Unread {
	return check.Unread{
		Why:  "only its Deployment says which account the operator has, and that was not read",
		Hint: "it takes the right to get the Deployment of the operator; --operator-namespace says where it is",
	}
}

// imageOf is the image of a pod that runs.
func imageOf(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return ""
	}
	for _, c := range p.Spec.Containers {
		if c.Name == managerName {
			return c.Image
		}
	}
	return ""
}

func arguments(d *appsv1.Deployment) []string {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == managerName {
			return c.Args
		}
	}
	return nil
}

// settings reads the arguments that matter here; the others of the operator are left out.
func settings(args []string) check.Settings {
	given := map[string]string{}
	for _, a := range args {
		name, value, said := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if !said {
			value = "true"
		}
		given[name] = value
	}
	s := check.Settings{
		Leader: given["ownership"] == "leader", Memory: given["nats-memory-storage"] == "true", StreamReplica: 1,
		NATSURL: given["nats-url"], RedisAddrs: given["redis-addrs"],
	}
	if n, err := strconv.Atoi(given["nats-replicas"]); err == nil {
		s.StreamReplica = n
	}
	if q, err := resource.ParseQuantity(given["nats-storage"]); err == nil {
		s.Storage = q.Value()
	}
	return s
}
