// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// everyName renders the chart with a name for each value that takes one, for the release and for
// its namespace, with certificates of the webhook by one of its three means.
func everyName(t *testing.T, name, certificates string) []*unstructured.Unstructured {
	t.Helper()
	args := []string{"template", name, "charts/syncopate", "--namespace", name}
	for _, text := range []string{
		"image.repository", "image.tag", "image.pullSecrets[0]", "nats.prefix", "nats.takeOver", "nats.auth.existingSecret", "nats.auth.userKey",
		"nats.auth.passwordKey", "nats.tls.caSecret", "nats.tls.caKey", "nats.tls.clientSecret", "redis.masterName",
		"redis.auth.existingSecret", "redis.auth.usernameKey", "redis.auth.passwordKey", "redis.auth.sentinelUsernameKey",
		"redis.auth.sentinelPasswordKey", "redis.tls.caSecret", "redis.tls.caKey", "redis.tls.clientSecret", "webhook.classes[0]",
		"metrics.certSecret", "console.hosts[0]", "console.audiences[0]", "console.trustedProxies[0]", "console.userExtras[0]",
		"serviceAccount.name", "serviceAccount.annotations.a", "commonLabels.a", "podLabels.b", "podAnnotations.c", "nodeSelector.d", "priorityClassName",
	} {
		args = append(args, "--set-string", text+"="+name)
	}
	if certificates == "secret" {
		args = append(args, "--set-string", "webhook.secretName="+name, "--set-string", "webhook.caBundle=1234")
	}
	for _, on := range []string{"redis.tls", "webhook", "console", "networkPolicy", "monitoring"} {
		args = append(args, "--set", on+".enabled=true")
	}
	manifests, err := run(nil, server.helm, append(args, "--set", "webhook.certificates="+certificates)...)
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, manifests)
}

// A name that YAML takes for a boolean, a number or nothing arrives as it was given. The API
// server refuses other things than strings in the middle of an installation, and what a shell
// gives to --set it may quote as it likes.
// mutation: quote taken from the name of a Secret, an entry, an account, a priority class, a
// namespace or the release, or from the caBundle, makes this fail.
func TestNamesThatLookLikeOtherThingsStayNames(t *testing.T) {
	for _, name := range []string{"y", "null", "1234", "1e3"} {
		for _, certificates := range []string{"operator", "cert-manager", "secret"} {
			t.Run(name+"/"+certificates, func(t *testing.T) {
				for _, o := range everyName(t, name, certificates) {
					expectStrings(t, o, name, certificates)
				}
			})
		}
	}
}

// expectStrings decodes an object: that fails where a number or a boolean is in a string's place.
func expectStrings(t *testing.T, o *unstructured.Unstructured, name, certificates string) {
	t.Helper()
	text, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(text, &meta); err != nil {
		t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	typed, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return // CRDs, and kinds of others
	}
	if err != nil {
		t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		return
	}
	switch o := typed.(type) {
	case *appsv1.Deployment:
		expectNamed(t, o, name, certificates)
	case *rbacv1.ClusterRole:
		if o.Name == "syncopate-console" && !slices.Contains(o.Rules[2].Resources, "userextras/"+name) {
			t.Errorf("user extras %q", o.Rules[2].Resources)
		}
	}
}

// expectNamed looks for the name in a Deployment of everyName.
func expectNamed(t *testing.T, d *appsv1.Deployment, name, certificates string) {
	t.Helper()
	pod := d.Spec.Template.Spec
	got := map[string]string{
		"namespace": d.Namespace, "pull secret": pod.ImagePullSecrets[0].Name, "priority class": pod.PriorityClassName, "node": pod.NodeSelector["d"],
		"label of all": d.Labels["a"], "label of pods": d.Spec.Template.Labels["b"], "annotation of pods": d.Spec.Template.Annotations["c"],
	}
	if d.Name == "syncopate" {
		got["account"] = pod.ServiceAccountName
	}
	for i := range pod.Volumes {
		if pod.Volumes[i].Name == "webhook-certs" && certificates == "cert-manager" {
			continue // its name is the chart's
		}
		got["Secret of "+pod.Volumes[i].Name] = pod.Volumes[i].Secret.SecretName
		for _, item := range pod.Volumes[i].Secret.Items {
			got["entry for "+pod.Volumes[i].Name+"/"+item.Path] = item.Key
		}
	}
	for what, is := range got {
		if is != name {
			t.Errorf("%s: %s is %q", d.Name, what, is)
		}
	}
	if image := pod.Containers[0].Image; image != name+":"+name {
		t.Errorf("%s: image %q", d.Name, image)
	}
}

// A flag is a string, whatever its value has in it: YAML takes a text with a colon at its end, or
// before a space, for a mapping.
// mutation: quote taken from --redis-master in _helpers.tpl, or from --trusted-proxies in
// console.yaml, makes this fail.
func TestFlagsWithColonsStayFlags(t *testing.T) {
	all := objects(t, mustHelm(t, "--set", "redis.masterName=locks:", "--set", "console.enabled=true", "--set", "console.hosts[0]=a: b",
		"--set", "console.audiences[0]=a: b", "--set", "console.trustedProxies[0]=a # b", "--set", "traces.endpoint=http://a: b"))
	var args []string
	for _, name := range []string{"syncopate", "syncopate-console"} {
		var d appsv1.Deployment
		findObject(t, all, "Deployment", operatorNamespace, name, &d)
		args = append(args, d.Spec.Template.Spec.Containers[0].Args...)
	}
	for _, want := range []string{"--redis-master=locks:", "--token-audiences=a: b", "--trusted-proxies=a # b", "--otlp-endpoint=http://a: b"} {
		if !slices.Contains(args, want) {
			t.Errorf("no %q in %q", want, args)
		}
	}
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--hosts=") && strings.HasSuffix(a, ",a: b") }) {
		t.Errorf("no host in %q", args)
	}
}

// Where the pods of an installation may run, and what they are called, goes for the console, too.
// mutation: any of these values left out of templates/console.yaml makes this fail.
func TestTheConsoleRunsWhereTheOperatorDoes(t *testing.T) {
	all := objects(t, mustHelm(t, "--values", "test/packaging/testdata/elaborate.yaml", "--set", "image.tag=", "--set", "console.enabled=true", "--set", "commonLabels.team=flow"))
	var console, operator appsv1.Deployment
	findObject(t, all, "Deployment", operatorNamespace, "syncopate-console", &console)
	findObject(t, all, "Deployment", operatorNamespace, "syncopate", &operator)
	pod, of := console.Spec.Template, operator.Spec.Template
	for what, same := range map[string]bool{
		"nodeSelector":      pod.Spec.NodeSelector["kubernetes.io/os"] == "linux",
		"tolerations":       len(pod.Spec.Tolerations) == 1 && pod.Spec.Tolerations[0] == of.Spec.Tolerations[0],
		"priorityClassName": pod.Spec.PriorityClassName == "system-cluster-critical",
		"podLabels":         pod.Labels["example.org/team"] == "platform",
		"commonLabels":      pod.Labels["team"] == "flow",
		"podAnnotations":    pod.Annotations["example.org/restarted"] == "1",
		"its own component": pod.Labels["app.kubernetes.io/component"] == "console",
	} {
		if !same {
			t.Errorf("not so with the console: %s", what)
		}
	}
	if pod.Spec.Affinity != nil || len(pod.Spec.TopologySpreadConstraints) > 0 {
		t.Errorf("the console has what spreads the operator: %v %v", pod.Spec.Affinity, pod.Spec.TopologySpreadConstraints)
	}
}
