// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
)

// mutation: each pattern, bound or check taken out of values.schema.json or templates/validate.yaml
// makes its row fail.
func TestBadValuesAreRefusedWithTheirNames(t *testing.T) {
	for name, c := range map[string]struct {
		set  []string
		want []string // words of the error
	}{
		"a value that does not exist":                {[]string{"replicaCount=3"}, []string{"replicaCount"}},
		"a typing error further down":                {[]string{"nats.uri=nats://x:4222"}, []string{"/nats", "uri"}},
		"no replica":                                 {[]string{"replicas=0"}, []string{"/replicas", "minimum"}},
		"replicas in words":                          {[]string{"replicas=two"}, []string{"/replicas", "want integer"}},
		"a password in the address of NATS":          {[]string{"nats.url=nats://user:secret@nats:4222"}, []string{"/nats/url"}},
		"NATS without a scheme":                      {[]string{"nats.url=nats:4222"}, []string{"/nats/url"}},
		"two replicas of streams":                    {[]string{"nats.streamReplicas=2"}, []string{"/nats/streamReplicas"}},
		"room in words":                              {[]string{"nats.storage=much"}, []string{"/nats/storage"}},
		"room for hardly a message":                  {[]string{"nats.storage=100Mi"}, []string{"nats.storage", "100Mi", "256Mi"}},
		"a prefix in capitals":                       {[]string{"nats.prefix=ABC"}, []string{"/nats/prefix"}},
		"Redis without a port":                       {[]string{"redis.addrs=redis"}, []string{"/redis/addrs"}},
		"Redis as a URL":                             {[]string{"redis.addrs=redis://:secret@redis:6379"}, []string{"/redis/addrs"}},
		"another maker of certificates":              {[]string{"webhook.certificates=vault"}, []string{"/webhook/certificates"}},
		"certificates of one's own, and no name":     {[]string{"webhook.enabled=true", "webhook.certificates=secret"}, []string{"webhook.secretName", "webhook.caBundle"}},
		"a Secret for certificates that others make": {[]string{"webhook.secretName=x"}, []string{"webhook.secretName", "certificates: secret"}},
		"a CA for Redis without TLS":                 {[]string{"redis.tls.caSecret=x"}, []string{"redis.tls.enabled"}},
		"a credentials file of no Secret":            {[]string{"nats.auth.existingSecret=", "nats.auth.credsKey=a.creds"}, []string{"nats.auth.existingSecret"}},
		"a log level that does not exist":            {[]string{"logLevel=chatty"}, []string{"/logLevel"}},
		"no drain, ever":                             {[]string{"podDisruptionBudget.maxUnavailable=0"}, []string{"podDisruptionBudget.maxUnavailable", "drained"}},
		"a flag that has a value of its own":         {[]string{"extraArgs={--leader-elect=false}"}, []string{"extraArgs", "--leader-elect=false"}},
		"step events in words":                       {[]string{"stepEvents=all"}, []string{"/stepEvents"}},
		"step events by another way":                 {[]string{"extraArgs={--step-events}"}, []string{"extraArgs", "--step-events"}},
		"an argument that is no flag":                {[]string{"extraArgs={nats}"}, []string{"/extraArgs/0"}},
		"a flag that a value sets":                   {[]string{"extraArgs={--nats-url=nats://y:4222}"}, []string{"extraArgs", "--nats-url"}},
		"a flag twice":                               {[]string{"extraArgs={--max-concurrent-runs=2,-max-concurrent-runs=3}"}, []string{"extraArgs", "--max-concurrent-runs", "twice"}},
		"another way of owning runs":                 {[]string{"ownership=both"}, []string{"/ownership"}},
		"no image":                                   {[]string{"image.tag="}, []string{"image.tag", "image.digest"}},
		"no drain of the only replica":               {[]string{"replicas=1", "podDisruptionBudget.maxUnavailable=0"}, []string{"podDisruptionBudget.maxUnavailable", "drained"}},
		"no drain, in per cent":                      {[]string{"podDisruptionBudget.maxUnavailable=0%"}, []string{"podDisruptionBudget.maxUnavailable", "drained"}},
		"pods that the Deployment does not know":     {[]string{`podLabels.app\.kubernetes\.io/name=x`}, []string{"podLabels", "app.kubernetes.io/name"}},
		"labels that Helm sets":                      {[]string{`commonLabels.app\.kubernetes\.io/instance=x`}, []string{"commonLabels", "app.kubernetes.io/instance"}},
		"a tag beside a digest, which would win":     {[]string{"image.digest=sha256:" + strings.Repeat("0", 64)}, []string{"image.tag", "image.digest", "both"}},
		"a digest that is none":                      {[]string{"image.digest=latest"}, []string{"/image/digest"}},
		"a pull policy in lower case":                {[]string{"image.pullPolicy=always"}, []string{"/image/pullPolicy"}},
		"an account without a name":                  {[]string{"serviceAccount.name="}, []string{"/serviceAccount/name", "minLength"}},
		"an account that is there, without a name":   {[]string{"serviceAccount.create=false", "serviceAccount.name="}, []string{"/serviceAccount/name"}},
		"NATS at a port that the network policy shuts": {
			[]string{"networkPolicy.enabled=true", `nats.url=nats://a:4222\, nats://b:4223`}, []string{"nats.url", "4223", "networkPolicy.natsPorts"},
		},
		"NATS without a port, and the policy for another": {
			[]string{"networkPolicy.enabled=true", "nats.url=tls://a", "networkPolicy.natsPorts={4223}"}, []string{"nats.url", "4222", "networkPolicy.natsPorts"},
		},
		"NATS by a WebSocket, and no port for that":     {[]string{"networkPolicy.enabled=true", "nats.url=wss://a"}, []string{"nats.url", "443", "networkPolicy.natsPorts"}},
		"Redis at a port that the policy shuts":         {[]string{"networkPolicy.enabled=true", `redis.addrs=a:6379\,b:7000`}, []string{"redis.addrs", "7000", "networkPolicy.redisPorts"}},
		"a collector at a port that the policy shuts":   {[]string{"networkPolicy.enabled=true", "traces.endpoint=https://a/otlp:4318"}, []string{"traces.endpoint", "443", "networkPolicy.tracesPorts"}},
		"a collector at a port that is not the default": {[]string{"networkPolicy.enabled=true", "traces.endpoint=http://[fd00::1]:9000/x"}, []string{"traces.endpoint", "9000"}},
		"a pull secret without a name":                  {[]string{"image.pullSecrets={}", "image.pullSecrets[0]="}, []string{"/image/pullSecrets/0"}},
	} {
		t.Run(name, func(t *testing.T) {
			var args []string
			for _, s := range c.set {
				args = append(args, "--set", s)
			}
			_, err := helm(t, args...)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, word := range c.want {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("refused without %q: %v", word, err)
				}
			}
		})
	}
}

// Helm changes bindings before the Deployment: the pods that run lose their rights, and new ones
// wait for what they cannot have.
//
// mutation: the page, or the chart's values, without it makes this fail.
func TestTheAccountIsChosenAtTheFirstInstallation(t *testing.T) {
	for file, words := range map[string]string{
		"docs/install.md":              "Choose the name at the first installation",
		"charts/syncopate/values.yaml": "choose it at the first installation",
	} {
		text, err := os.ReadFile(filepath.Join(moduleRoot, filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, words) && strings.Contains(line, "to 0 first") {
				words = ""
			}
		}
		if words != "" {
			t.Errorf("%s does not say %q, and to scale to 0 first", file, words)
		}
	}
}

// What the policy lets out to is as given, and without a policy nobody asks.
//
// mutation: validate.yaml that takes another default, or that asks without a policy,
// makes this fail.
func TestPortsThatTheNetworkPolicyOpensAreTaken(t *testing.T) {
	for name, set := range map[string][]string{
		"no policy":        {"nats.url=nats://a:1", "redis.addrs=b:2", "traces.endpoint=http://c"},
		"the defaults":     {"networkPolicy.enabled=true", `nats.url=nats://a\,tls://[fd00::1]`, `redis.addrs=b:6379\,c:26379`, "traces.endpoint=http://c:4318/x"},
		"ports of schemes": {"networkPolicy.enabled=true", `nats.url=ws://a\, wss://b`, "networkPolicy.natsPorts={80,443}", "traces.endpoint=http://c", "networkPolicy.tracesPorts={80}"},
	} {
		var args []string
		for _, s := range set {
			args = append(args, "--set", s)
		}
		if _, err := helm(t, args...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The operator ends at its start with less than 256Mi. All units are for it to say so.
//
// mutation: a unit left out of validate.yaml, or one with another factor, makes this fail.
func TestTheRoomInNATSIsEnoughForTheOperator(t *testing.T) {
	for size, enough := range map[string]bool{
		"16": false, "268435455": false, "268435456": true, "268435k": false, "268436k": true, "262143Ki": false, "262144Ki": true,
		"268M": false, "269M": true, "255Mi": false, "256Mi": true, "1G": true, "1Gi": true, "1T": true, "1Ti": true,
	} {
		_, err := helm(t, "--set-string", "nats.storage="+size)
		if enough != (err == nil) {
			t.Errorf("%s: enough %v, and %v", size, enough, err)
		}
	}
	if _, err := helm(t, "--set", "nats.storage="); err != nil {
		t.Errorf("no limits: %v", err)
	}
}

// What an installation says about NATS, Redis and certificates arrives at the operator: as flags
// that it has, files that are mounted, and variables that it reads.
// mutation: a flag, a mount or a variable left out of the templates makes this fail.
func TestValuesReachTheOperator(t *testing.T) {
	d := deployment(t, "--values", "test/packaging/testdata/elaborate.yaml", "--set", "image.tag=")
	container := d.Spec.Template.Spec.Containers[0]
	args := sets.New(container.Args...)
	for _, want := range []string{
		"--nats-url=tls://nats-0.example.org:4222,tls://nats-1.example.org:4222", "--nats-prefix=team-a", "--nats-take-over=old-cluster", "--nats-replicas=3", "--nats-storage=16Gi",
		"--nats-creds=/run/nats-creds/operator.creds", "--nats-ca=/run/nats-ca/ca.crt", "--nats-cert=/run/nats-client/tls.crt",
		"--nats-key=/run/nats-client/tls.key", "--redis-addrs=sentinel-0:26379,sentinel-1:26379", "--redis-master=primary", "--redis-tls=true",
		"--redis-ca=/run/redis-ca/ca.pem", "--webhook-bind-address=:9443", "--webhook-cert-dir=/run/webhook-certs", "--zap-log-level=2",
		"--max-concurrent-runs=32", "--redis-auth-dir=/run/redis-auth", "--redis-cert=/run/redis-client/tls.crt", "--redis-key=/run/redis-client/tls.key",
	} {
		if !args.Has(want) {
			t.Errorf("no %s in %q", want, container.Args)
		}
	}
	secrets := map[string]string{}
	for _, v := range d.Spec.Template.Spec.Volumes {
		secrets[v.Name] = v.Secret.SecretName
	}
	for _, m := range container.VolumeMounts {
		want := map[string]string{
			"/run/nats-creds": "nats-operator", "/run/nats-ca": "nats-ca", "/run/nats-client": "nats-client", "/run/redis-ca": "redis-ca",
			"/run/webhook-certs": "webhook-tls", "/run/redis-auth": "redis-operator", "/run/redis-client": "redis-client",
		}[m.MountPath]
		if want == "" || secrets[m.Name] != want || !m.ReadOnly {
			t.Errorf("at %s is Secret %q, want %q, read-only", m.MountPath, secrets[m.Name], want)
		}
	}
	if len(container.VolumeMounts) != 7 {
		t.Errorf("mounts %v", container.VolumeMounts)
	}
	entries := map[string]string{}
	for _, v := range d.Spec.Template.Spec.Volumes {
		for _, item := range v.Secret.Items {
			entries[v.Name+"/"+item.Path] = item.Key
		}
	}
	if entries["redis-auth/username"] != "name" || entries["redis-auth/password"] != "password" || entries["redis-auth/sentinelPassword"] != "sentinelPassword" {
		t.Errorf("entries of Secrets: %v", entries)
	}
	if want := "example.org/team/syncopate@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"; container.Image != want {
		t.Errorf("image %s", container.Image)
	}
}

// mutation: commonLabels left out of the pods, extra volumes left out, or the account's name left
// out of a binding, of the status policy or of the flow schema makes this fail.
func TestWhatAnInstallationAddsIsThere(t *testing.T) {
	const account = "system:serviceaccount:" + operatorNamespace + ":robot"
	args := []string{
		"--set", "serviceAccount.name=robot", "--set", "commonLabels.team=flow", "--set", "podLabels.team=pods",
		"--set-json", `extraVolumes=[{"name":"extra","emptyDir":{}}]`, "--set-json", `extraVolumeMounts=[{"name":"extra","mountPath":"/extra"}]`,
	}
	manifests := mustHelm(t, args...)
	if !strings.Contains(string(manifests), account) {
		t.Errorf("no policy names %s", account)
	}
	for _, o := range objects(t, manifests) {
		if strings.HasSuffix(o.GetKind(), "Binding") || o.GetKind() == "FlowSchema" {
			text, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), `"kind":"ServiceAccount","name":"syncopate"`) || strings.Contains(string(text), `"serviceAccount":{"name":"syncopate"`) {
				t.Errorf("%s %s is for another account", o.GetKind(), o.GetName())
			}
		}
	}
	d := deployment(t, args...)
	pod := d.Spec.Template
	if d.Labels["team"] != "flow" || pod.Labels["team"] != "pods" || pod.Spec.ServiceAccountName != "robot" {
		t.Errorf("labels %v, of pods %v, account %s", d.Labels, pod.Labels, pod.Spec.ServiceAccountName)
	}
	if v, m := pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts; len(v) != 3 || v[2].Name != "extra" || len(m) != 3 || m[2].MountPath != "/extra" {
		t.Errorf("volumes %v, mounts %v", v, m)
	}
	for _, o := range objects(t, mustHelm(t, "--set", "serviceAccount.create=false")) {
		if o.GetKind() == "ServiceAccount" {
			t.Error("an account that is there already is made")
		}
	}
}

// Every flag that the chart passes is one that the operator has; those of kustomize are the same.
// mutation: a flag with another name in the templates makes this fail.
func TestTheOperatorKnowsItsFlags(t *testing.T) {
	help := exec.Command("go", "run", "./cmd/manager", "--help")
	help.Dir = moduleRoot
	said, err := help.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	var containers []corev1.Container
	for _, args := range [][]string{nil, {"--set", "webhook.enabled=true"}, {"--values", "test/packaging/testdata/elaborate.yaml", "--set", "image.tag="}} {
		containers = append(containers, deployment(t, args...).Spec.Template.Spec.Containers...)
	}
	for _, c := range containers {
		for _, arg := range c.Args {
			name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			if !regexp.MustCompile(`(?m)^  -` + name + `\b`).Match(said) {
				t.Errorf("the operator has no flag --%s", name)
			}
		}
	}
}

func deployment(t *testing.T, args ...string) *appsv1.Deployment {
	t.Helper()
	for _, o := range objects(t, mustHelm(t, args...)) {
		if o.GetKind() != "Deployment" {
			continue
		}
		d := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	t.Fatal("there is no Deployment")
	return nil
}
