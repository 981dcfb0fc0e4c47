// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// withAuthorities is examples/production in an overlay with components beside it, those of parts.
func withAuthorities(t *testing.T, parts ...string) []*unstructured.Unstructured {
	t.Helper()
	dir := t.TempDir()
	example, err := filepath.Abs(filepath.Join(moduleRoot, "examples", "production"))
	if err != nil {
		t.Fatal(err)
	}
	if example, err = filepath.Rel(dir, example); err != nil {
		t.Fatal(err)
	}
	overlay := "resources: [" + example + "]\ncomponents:\n"
	for _, part := range parts {
		overlay += "- " + example + "/authorities/" + part + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	return objects(t, kustomize(t, dir))
}

// templatesOfParts are the pods of NATS, Redis and the operator, by the names of their
// components.
func templatesOfParts(t *testing.T, all []*unstructured.Unstructured) map[string]*corev1.PodTemplateSpec {
	t.Helper()
	templates := map[string]*corev1.PodTemplateSpec{}
	for _, name := range []string{"nats", "redis"} {
		var s appsv1.StatefulSet
		findObject(t, all, "StatefulSet", name, name, &s)
		templates[name] = &s.Spec.Template
	}
	var d appsv1.Deployment
	findObject(t, all, "Deployment", operatorNamespace, "syncopate", &d)
	templates["operator"] = &d.Spec.Template
	return templates
}

// sourcesOfTLS says where the files of the volume tls are from.
func sourcesOfTLS(t *testing.T, pod *corev1.PodTemplateSpec) (from []string) {
	t.Helper()
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "tls" })
	if i < 0 || pod.Spec.Volumes[i].Secret != nil || pod.Spec.Volumes[i].Projected == nil {
		t.Errorf("the volume tls is not of several sources: %v", pod.Spec.Volumes)
		return nil
	}
	for _, s := range pod.Spec.Volumes[i].Projected.Sources {
		switch {
		case s.Secret != nil && len(s.Secret.Items) > 0:
			for _, item := range s.Secret.Items {
				from = append(from, s.Secret.Name+" "+item.Key+" "+item.Path)
			}
		case s.ConfigMap != nil:
			from = append(from, s.ConfigMap.Name)
		}
	}
	return from
}

// cert-manager writes the authority of the issuer into ca.crt of its Secrets, so that a file
// with an old and a new one needs another place. It is read under the name of before: arguments
// and configurations stay.
//
// mutation: a part left out of its component, or ca.crt among the items of a Secret,
// makes this fail.
func TestWhomPartsTrustMayComeFromAConfigMap(t *testing.T) {
	secrets := map[string]string{"nats": "nats-tls", "redis": "redis-tls", "operator": "syncopate-tls"}
	for name, pod := range templatesOfParts(t, withAuthorities(t, "nats", "redis", "operator")) {
		want := []string{secrets[name] + " tls.crt tls.crt", secrets[name] + " tls.key tls.key", "syncopate-authorities"}
		if from := sourcesOfTLS(t, pod); !slices.Equal(from, want) {
			t.Errorf("%s: the volume is of %q; want %q", name, from, want)
		}
	}
}

// What restarts two parts at once is a fault on top of another.
//
// mutation: a component that changes the pods of a second part makes this fail.
func TestAComponentOfAuthoritiesChangesThePodsOfOnePart(t *testing.T) {
	before := templatesOfParts(t, production(t))
	for part := range before {
		for name, pod := range templatesOfParts(t, withAuthorities(t, part)) {
			if changed := !equality.Semantic.DeepEqual(pod, before[name]); changed != (name == part) {
				t.Errorf("with the component of %s the pods of %s change: %t", part, name, changed)
			}
		}
	}
}

// A rolling update goes from the last pod to the first one, and waits for a port that listens: it
// may end the master before any replica has the data, which is in memory only.
//
// mutation: the strategy left out of redis.yaml, or the page without a step or in another order,
// makes this fail.
func TestPodsOfRedisAreReplacedInTheOrderOfThePage(t *testing.T) {
	var s appsv1.StatefulSet
	findObject(t, production(t), "StatefulSet", "redis", "redis", &s)
	if by := s.Spec.UpdateStrategy.Type; by != appsv1.OnDeleteStatefulSetStrategyType {
		t.Errorf("pods of Redis are replaced by %q", by)
	}
	inOrder(t, sectionOf(t, "### Pods of Redis"), "state=online", "CKQUORUM locks", "FAILOVER locks", "leave $p; replace $p")
}

// kubectlOfRedis stands in for kubectl: the folder has the pod that is the master, and a log. The
// first delete ends with a fail-over that nobody asked for, and the first FAILOVER is aborted. Who
// asks for the master gets no answer each third time.
const kubectlOfRedis = `#!/bin/sh
cd "$FOLDER" || exit 1
case "$*" in
*GET-MASTER-ADDR-BY-NAME*)
  echo >> asked
  if [ $(($(wc -l < asked) % 3)) = 1 ]; then exit 1; fi
  echo "$(cat master).redis.redis.svc"; echo 6379 ;;
*"INFO replication"*) printf 'state=online\nstate=online\n' ;;
*CKQUORUM*) echo "OK 3 usable Sentinels" ;;
*FAILOVER*)
  if grep -q FAILOVER log; then echo redis-0 > master; fi
  echo FAILOVER >> log; echo OK ;;
*"delete pod"*)
  if [ ! -s log ]; then echo redis-1 > master; fi
  for pod; do :; done
  echo "delete $pod, master $(cat master)" >> log ;;
esac
`

// sleepOfRedis stands in for sleep, and ends who sleeps without end.
const sleepOfRedis = `#!/bin/sh
echo >> "$FOLDER/sleeps"
if [ "$(wc -l < "$FOLDER/sleeps")" -gt 100 ]; then kill "$PPID"; fi
`

// The master may change at any time, and a FAILOVER that was taken may be aborted.
//
// mutations: the page with the master looked up once, or FAILOVER said once, and one that takes no
// answer for a name make this fail.
func TestTheCommandsOfThePageNeverDeleteTheMasterOfRedis(t *testing.T) {
	_, commands, _ := strings.Cut(sectionOf(t, "### Pods of Redis"), "```\n")
	commands, _, found := strings.Cut(commands, "```")
	if !found {
		t.Fatal("the section has no commands")
	}
	dir := t.TempDir()
	for name, content := range map[string]string{"kubectl": kubectlOfRedis, "sleep": sleepOfRedis, "master": "redis-2\n", "log": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "secret() { :; }\n"+commands)
	cmd.Env = append(os.Environ(), "FOLDER="+dir, "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	log, logErr := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil || logErr != nil {
		t.Fatalf("%v, %v:\n%s\n%s", err, logErr, log, out)
	}
	want := "delete redis-0, master redis-1\nFAILOVER\nFAILOVER\ndelete redis-1, master redis-0\ndelete redis-2, master redis-0\n"
	if string(log) != want {
		t.Errorf("the commands did:\n%s\nwant:\n%s", log, want)
	}
}

// The file of authorities may change alone, and nats-server reads it on SIGHUP only.
//
// mutation: ca.crt taken from the reloader's arguments makes this fail.
func TestNATSReadsItsAuthoritiesAgain(t *testing.T) {
	var s appsv1.StatefulSet
	findObject(t, production(t), "StatefulSet", "nats", "nats", &s)
	if reloader := s.Spec.Template.Spec.Containers[1]; !slices.Contains(reloader.Args, "/etc/nats-tls/ca.crt") {
		t.Errorf("the reloader looks at %q", reloader.Args)
	}
}

// A server that has read the old authority alone refuses clients, and other servers, with a
// certificate of the new one. That this order works is what
// TestLocksOnSentinelWithTLSOutliveAFailOverAndRotations and
// TestAClusterWithTLSAndAccountsIsUsedAndRotationsAreFollowed try.
//
// mutation: the page without a command, or with certificates before it, makes this fail.
func TestThePageHasServersReadANewAuthorityBeforeItsCertificates(t *testing.T) {
	inOrder(t, sectionOf(t, "### A new CA"), "to all, servers too", "examples/production/authorities",
		"CONFIG SET tls-ca-cert-file /etc/redis-tls/ca.crt", "SHUTDOWN", "Then the certificates", "Then the old CA goes")
}

// Never two parts at a time: each component comes once the part before it is done.
//
// mutation: the page with a component for all parts, or without a wait between two, makes this
// fail.
func TestThePageHasOnePartReadANewAuthorityAfterTheOther(t *testing.T) {
	inOrder(t, sectionOf(t, "### A new CA"),
		"authorities/nats?ref", "authorities/redis?ref", "authorities/operator?ref",
		"rollout status statefulset/nats", "the pods of Redis](#pods-of-redis)", "rollout status deployment/syncopate")
}

// The ConfigMap has a copy, which nobody renews: at its end nobody trusts anybody. An authority
// that cert-manager makes without these two has 90 days, and another key then. After a first new
// authority the Secret of cert-manager has one that nobody uses any more.
//
// mutation: the page with the Secret alone for the old authority, or without how long a new
// authority lasts, who renews the copy, or where a person's machine has it from, makes this fail.
func TestThePageSaysWhoRenewsTheCopyOfAnAuthority(t *testing.T) {
	inOrder(t, sectionOf(t, "### A new CA"), "old.crt` is the CA that signed what is in use", "get configmap syncopate-authorities", "> old.crt", "secret syncopate-ca", "> old.crt")
	inOrder(t, sectionOf(t, "### A new CA"), "`duration: 87600h`", "rotationPolicy: Never", "syncopate-authorities")
	inOrder(t, sectionOf(t, "## Rotation"), "once it ends nobody trusts anybody", "Between it and the end of the copy put the renewed one there", "openssl x509")
	inOrder(t, sectionOf(t, "## From your machine"), "get configmap syncopate-authorities", "> tls/ca.crt", "secret syncopate-system syncopate-tls ca.crt")
}

// sectionOf is the text of docs/production.md from a heading to the next one.
func sectionOf(t *testing.T, heading string) string {
	t.Helper()
	_, section, found := strings.Cut(pageOf(t, "production.md"), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%q is no heading of the page", heading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	return section
}

// inOrder wants each of the texts behind the one before.
func inOrder(t *testing.T, section string, texts ...string) {
	t.Helper()
	at := 0
	for _, words := range texts {
		i := strings.Index(section[at:], words)
		if i < 0 {
			t.Fatalf("%q is not in the section, or not behind what comes first:\n%s", words, section)
		}
		at += i
	}
}
