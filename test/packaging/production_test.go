// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/conf"
	natsserver "github.com/nats-io/nats-server/v2/server"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	quantities "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/rights"
	"github.com/syncopate-dev/syncopate/internal/testenv/certs"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func production(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	return objects(t, kustomize(t, "examples/production"))
}

func findObject(t *testing.T, all []*unstructured.Unstructured, kind, namespace, name string, into any) {
	t.Helper()
	for _, o := range all {
		if o.GetKind() == kind && o.GetNamespace() == namespace && o.GetName() == name {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no %s %s in %s", kind, name, namespace)
}

// The API server takes every object of examples/production, and pods of its sets satisfy the
// standard that their namespaces enforce.
// mutation: an unknown field, or runAsNonRoot taken out of nats.yaml, makes this fail.
func TestTheProductionExampleIsTakenByTheAPIServer(t *testing.T) {
	all := production(t)
	var namespaces, others []string
	for _, o := range all {
		if ofOthers(o.GetAPIVersion()) {
			continue
		}
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "Namespace" && o.GetName() != operatorNamespace {
			namespaces = append(namespaces, string(text))
		} else {
			others = append(others, string(text))
		}
	}
	if err := apply([]byte(strings.Join(namespaces, "\n---\n"))); err != nil { // what is in them is tried in them
		t.Fatal(err)
	}
	if err := apply([]byte(strings.Join(others, "\n---\n")), "--dry-run=server", "--force-conflicts"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"nats", "redis"} {
		var s appsv1.StatefulSet
		findObject(t, all, "StatefulSet", name, name, &s)
		pod := &corev1.Pod{ObjectMeta: s.Spec.Template.ObjectMeta, Spec: s.Spec.Template.Spec}
		pod.Namespace, pod.Name = name, name+"-0"
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data"})
		if err := server.client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Errorf("a pod of %s: %v", name, err)
		}
	}
}

// The operator's flags are ones that it has, and its servers are those of the example.
// mutation: a flag with a typing error makes this fail.
func TestTheOperatorOfTheProductionExampleHasItsFlags(t *testing.T) {
	var d appsv1.Deployment
	findObject(t, production(t), "Deployment", operatorNamespace, "syncopate", &d)
	if *d.Spec.Replicas != 3 {
		t.Errorf("%d replicas", *d.Spec.Replicas)
	}
	_, err := run(nil, "go", "run", "./cmd/manager", "--no-such-flag") // what it says is in the error
	text := fmt.Sprint(err)
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.Contains(text, "-"+name) {
			t.Errorf("the operator has no flag --%s", name)
		}
	}
}

// The configuration of NATS is one that the server reads, with the accounts that the plugin prints.
// mutation: a bracket taken out of nats.conf makes this fail.
func TestTheNATSOfTheProductionExampleIsConfigured(t *testing.T) {
	var c corev1.ConfigMap
	findObject(t, production(t), "ConfigMap", "nats", "nats", &c)
	files := certs.NewAuthority(t).Issue(time.Hour)
	dir := t.TempDir()
	text := strings.NewReplacer("/etc/nats-tls/tls.crt", files.Cert, "/etc/nats-tls/tls.key", files.Key, "/etc/nats-tls/ca.crt", files.CA).Replace(c.Data["nats.conf"])
	n := protocol.Names{Prefix: protocol.DefaultPrefix}
	accounts := rights.Account("SYNCOPATE", rights.User{Name: "operator", Password: "$NATS_OPERATOR_PASSWORD", May: rights.Operator(n)})
	for path, content := range map[string]string{"nats.conf": text, "accounts/accounts.conf": accounts} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("POD_NAME", "nats-0")
	t.Setenv("NATS_OPERATOR_PASSWORD", "secret")
	t.Setenv("NATS_ROUTE_PASSWORD", "secret")
	t.Setenv("NATS_ROUTES", "[nats://a, nats://b, nats://c]")
	o, err := natsserver.ProcessConfigFile(filepath.Join(dir, "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if o.ServerName != "nats-0" || o.TLSConfig.ClientAuth != tls.RequireAndVerifyClientCert || o.Cluster.TLSConfig == nil || len(o.Routes) != 3 || !o.SyncAlways || len(o.Users) != 1 {
		t.Errorf("name %s, verify %s, cluster TLS %v, %d routes, sync %v, %d users", o.ServerName, o.TLSConfig.ClientAuth, o.Cluster.TLSConfig != nil, len(o.Routes), o.SyncAlways, len(o.Users))
	}
}

// NATS reserves for each stream what it may hold, and refuses a stream for which it has
// not as much.
// mutation: a --nats-storage above the max_file of nats.yaml makes this fail.
func TestTheStreamsOfTheProductionExampleFitIntoItsNATS(t *testing.T) {
	var d appsv1.Deployment
	var c corev1.ConfigMap
	all := production(t)
	findObject(t, all, "Deployment", operatorNamespace, "syncopate", &d)
	findObject(t, all, "ConfigMap", "nats", "nats", &c)
	storage := natsStorage(&d)
	_, text, _ := strings.Cut(c.Data["nats.conf"], "max_file: ")
	text, _, _ = strings.Cut(text, "\n")
	most, err := quantities.ParseQuantity(strings.TrimSuffix(strings.TrimSpace(text), "B"))
	if err != nil || storage.IsZero() || storage.Cmp(most) >= 0 {
		t.Errorf("--nats-storage is %s, max_file %s (%v)", storage.String(), text, err)
	}
}

// natsStorage is what an operator's streams may hold together; zero: nothing says it.
func natsStorage(d *appsv1.Deployment) (storage quantities.Quantity) {
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		if text, ok := strings.CutPrefix(arg, "--nats-storage="); ok {
			storage = quantities.MustParse(text)
		}
	}
	return storage
}

// The operator's user in Redis has the rights that the plugin prints.
// mutation: a right left out of redis.yaml makes this fail.
func TestTheRedisOfTheProductionExampleHasTheRights(t *testing.T) {
	var c corev1.ConfigMap
	findObject(t, production(t), "ConfigMap", "redis", "redis", &c)
	want := "user syncopate on >%SYNCOPATE% " + strings.Join(rights.Redis(false), " ")
	if !slices.Contains(strings.Split(strings.TrimSpace(c.Data["users.acl"]), "\n"), want) {
		t.Errorf("users are\n%s\nwant\n%s", c.Data["users.acl"], want)
	}
}

// Redis reads its certificate at its start only, so that is one that outlives its pods; it ends no
// sooner than the authority that signed it. What NATS has, its reloader has read again.
// mutation: the duration of redis taken out of certificates.yaml, or tls.crt out of the reloader's
// arguments, makes this fail.
func TestNoPartOfTheProductionExampleOutlivesItsCertificate(t *testing.T) {
	all := production(t)
	duration := func(namespace, name string) string {
		var c struct {
			Spec struct {
				Duration string `json:"duration"`
			} `json:"spec"`
		}
		findObject(t, all, "Certificate", namespace, name, &c)
		return c.Spec.Duration
	}
	if got, want := duration("redis", "redis"), duration("cert-manager", "syncopate-ca"); got != want || want != "87600h" {
		t.Errorf("the certificate of Redis holds for %q, that of the authority for %q; want ten years", got, want)
	}
	var s appsv1.StatefulSet
	findObject(t, all, "StatefulSet", "nats", "nats", &s)
	if reloader := s.Spec.Template.Spec.Containers[1]; !slices.Contains(reloader.Args, "/etc/nats-tls/tls.crt") {
		t.Errorf("the reloader looks at %q", reloader.Args)
	}
}

// commandsOf are the shell commands of docs/production.md that make Secrets.
func commandsOf(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(moduleRoot, "docs", "production.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, block := range strings.Split(string(page), "\n```") {
		if i%2 == 1 && strings.Contains(block, "nats-passwords") {
			_, commands, _ := strings.Cut(block, "\n") // after the word behind the fence
			return commands
		}
	}
	t.Fatal("no block makes the Secret nats-passwords")
	return ""
}

// nats-server reads the text of a variable as configuration. Of random hex digits one password in
// fifteen looks like a number, and the server does not start. The commands of the page are run with
// an openssl that draws such digits; the server of this module takes the passwords.
// mutation: the letter taken from any password of docs/production.md makes this fail.
func TestThePasswordsOfTheProductionPageAreTextsToNATS(t *testing.T) {
	const digits = "123456789012345678901234" // taken for a number by every version
	script := "set -eu\nopenssl() { echo " + digits + "; }\nkubectl() { case \"$*\" in *=/dev/stdin*) cat;; esac; printf '%s\\n' \"$@\"; }\n" + commandsOf(t)
	out, err := run(nil, "bash", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	passwords := 0
	for line := range strings.SplitSeq(string(out), "\n") {
		arg, is := strings.CutPrefix(line, "--from-literal=")
		if _, value, _ := strings.Cut(arg, "="); is && strings.Contains(value, digits) {
			passwords++
			t.Setenv("PASSWORD_OF_THE_PAGE", value)
			read, err := conf.Parse("password: $PASSWORD_OF_THE_PAGE\n")
			if err != nil || read["password"] != value || value[0] < 'a' || value[0] > 'z' {
				t.Errorf("%s is read as %v: %v", line, read["password"], err)
			}
		}
	}
	if passwords != 10 {
		t.Errorf("%d passwords in\n%s", passwords, out)
	}
}

// A sentinel keeps on a volume what it knows, and rewrites the file. Where its pod starts again it
// has the passwords of the Secret all the same, and still knows the master.
// mutation: a script that writes passwords only where there is no file makes this fail, as does one
// that keeps what is left of requirepass in "user default", or begins with the shipped file again.
func TestASentinelStartsWithThePasswordsOfItsSecret(t *testing.T) {
	var c corev1.ConfigMap
	findObject(t, production(t), "ConfigMap", "redis", "redis", &c)
	etc, data := t.TempDir(), t.TempDir()
	for name, text := range c.Data {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := "hostname() { echo redis-0; }\n" + strings.NewReplacer("/etc/redis", etc, "/data", data).Replace(c.Data["init.sh"])
	read := func(file string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(data, file))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	// started is what the file of the sentinel is when its pod has started with these passwords.
	started := func(admin, sentinel string) string {
		t.Helper()
		if _, err := run(nil, "env", "ADMIN="+admin, "SYNCOPATE=operator", "SENTINEL="+sentinel, "sh", "-c", script); err != nil {
			t.Fatal(err)
		}
		text := read("sentinel.conf")
		want := fmt.Sprintf("sentinel announce-ip redis-0.redis.redis.svc\nsentinel auth-pass locks %s\nrequirepass %s\nsentinel sentinel-pass %s\n", admin, sentinel, sentinel)
		if !strings.HasSuffix(text, want) || strings.Count(text, "requirepass") != 1 {
			t.Errorf("the file is\n%s\nwant at its end\n%s", text, want)
		}
		return text
	}
	first := started("admin-1", "sentinel-1")
	rewritten := strings.NewReplacer("sentinel monitor locks redis-0.", "sentinel monitor locks redis-1.", "requirepass sentinel-1", `requirepass "sentinel-1"`).Replace(first) +
		"# Generated by CONFIG REWRITE\nuser default on sanitize-payload #5f4d ~* &* +@all\nsentinel myid 0a1b\nsentinel known-replica locks redis-0.redis.redis.svc 6379\n"
	if err := os.WriteFile(filepath.Join(data, "sentinel.conf"), []byte(rewritten), 0o600); err != nil {
		t.Fatal(err)
	}
	second := started("admin-2", "sentinel-2")
	for text, is := range map[string]bool{
		"sentinel monitor locks redis-1.redis.redis.svc 6379 2\n": true, "sentinel myid 0a1b\n": true, "sentinel known-replica locks redis-0.": true,
		"sentinel auth-user locks admin\n": true, "user default": false, "admin-1": false, "sentinel-1": false,
	} {
		if strings.Contains(second, text) != is {
			t.Errorf("%q is in it: %t\n%s", text, !is, second)
		}
	}
	if third := started("admin-2", "sentinel-2"); third != second {
		t.Errorf("a further start makes of it\n%s", third)
	}
	if redis := read("redis.conf"); !strings.HasSuffix(redis, "masterauth admin-2\nreplicaof redis-1.redis.redis.svc 6379\n") {
		t.Errorf("redis.conf is\n%s", redis)
	}
}
