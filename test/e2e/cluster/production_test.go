// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/testenv/certs"
)

// production is the label of the specs of examples/production.
const production = "production"

const (
	controlPlane = "node-role.kubernetes.io/control-plane"
	// certificatesLast is longer than the suite.
	certificatesLast = 12 * time.Hour
	// longRuns runs of longSteps steps, one after the other, are under way while something ends.
	longRuns, longSteps = 12, 25
	longMillis          = 2000
	// stillBound is how long no worker may have a job of such a run: the second delivery of a
	// result (30 s) and what its way takes on a small machine.
	stillBound = 60 * time.Second
)

// password is one that nobody guesses. It begins with a letter: see docs/production.md.
func password() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	return "n" + hex.EncodeToString(b[:])
}

// secret creates a Secret.
func secret(ctx context.Context, namespace, name string, data map[string]string) {
	GinkgoHelper()
	Expect(k8s.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, StringData: data})).To(Succeed())
}

// tlsSecret creates a Secret as cert-manager does.
func tlsSecret(ctx context.Context, a *certs.Authority, namespace, name string, hosts ...string) {
	GinkgoHelper()
	files := a.Issue(certificatesLast, hosts...)
	data := map[string]string{}
	for key, path := range map[string]string{"ca.crt": files.CA, "tls.crt": files.Cert, "tls.key": files.Key} {
		text, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		data[key] = string(text)
	}
	secret(ctx, namespace, name, data)
}

// syncopate runs the plugin as a user does.
func syncopate(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := try(ctx, "", "go", append([]string{"run", "./cmd/kubectl-syncopate"}, args...)...)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// withoutOthers takes out of examples/production what needs images and kinds that the suite does
// not bring: its certificates are in Secrets already, and none is replaced meanwhile. All nodes are
// on one machine, so nobody asks for half a CPU.
const withoutOthers = `patches:
- target: {group: cert-manager.io}
  patch: '{$patch: delete, apiVersion: v1, kind: any, metadata: {name: any}}'
- target: {kind: StatefulSet, name: nats}
  patch: '[{"op": "test", "path": "/spec/template/spec/containers/1/name", "value": "reloader"}, {"op": "remove", "path": "/spec/template/spec/containers/1"},
    {"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests", "value": {"cpu": "50m", "memory": "64Mi"}}]'
- target: {kind: StatefulSet, name: redis}
  patch: '[{"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests", "value": {"cpu": "50m", "memory": "64Mi"}}]'
- target: {kind: Deployment, name: syncopate}
  patch: '[{"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests", "value": {"cpu": "50m", "memory": "64Mi"}}]'
`

// besideWorkers is where workers and their ledger are: on the node that nothing happens to, with
// the login that workers have.
const besideWorkers = `patches:
- target: {kind: Deployment, name: sample}
  patch: '[{"op": "replace", "path": "/spec/replicas", "value": 0}]'
- target: {kind: Deployment, name: tally}
  patch: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: tally}
    spec:
      template:
        spec:
          nodeSelector: {node-role.kubernetes.io/control-plane: ""}
          containers:
          - name: worker
            env:
            - {name: NATS_URL, value: "tls://nats-0.nats.nats.svc:4222,tls://nats-1.nats.nats.svc:4222,tls://nats-2.nats.nats.svc:4222"}
            - {name: NATS_TLS, value: /tls}
            - {name: NATS_USER, value: worker}
            - {name: NATS_PASSWORD, valueFrom: {secretKeyRef: {name: nats, key: password}}}
            volumeMounts: [{name: tls, mountPath: /tls, readOnly: true}]
          volumes: [{name: tls, secret: {secretName: tls}}]
`

const besideLedger = `patches:
- target: {kind: StatefulSet, name: redis}
  patch: '[{"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"node-role.kubernetes.io/control-plane": ""}}]'
`

func productionOverlay() string {
	GinkgoHelper()
	return overlay("production", "examples/production", map[string]string{"syncopate": config.operator, "nats": config.nats, "redis": config.redis}, withoutOthers)
}

// installProduction does what docs/production.md says.
func installProduction(ctx context.Context) {
	GinkgoHelper()
	for _, ns := range []string{natsNS, redisNS, operatorNS, ledgerNS, workersNS} {
		Expect(k8s.Create(ctx, namespaceNamed(ns))).To(Succeed())
	}
	a := certs.NewAuthority(GinkgoTB())
	tlsSecret(ctx, a, natsNS, "nats-tls", "*.nats.nats.svc", "nats.nats.svc")
	tlsSecret(ctx, a, redisNS, "redis-tls", "*.redis.redis.svc")
	tlsSecret(ctx, a, operatorNS, "syncopate-tls")
	tlsSecret(ctx, a, workersNS, "tls")
	op, work, redis, sentinel := password(), password(), password(), password()
	secret(ctx, natsNS, "nats-passwords", map[string]string{"operator": op, "worker": work, "admin": password(), "route": password()})
	secret(ctx, natsNS, "nats-accounts", map[string]string{"accounts.conf": syncopate(ctx, "permissions", "nats", "--admin")})
	secret(ctx, redisNS, "redis-passwords", map[string]string{"admin": password(), "syncopate": redis, "sentinel": sentinel})
	secret(ctx, operatorNS, "syncopate-nats", map[string]string{"user": "operator", "password": op})
	secret(ctx, operatorNS, "syncopate-redis", map[string]string{"username": "syncopate", "password": redis, "sentinelPassword": sentinel})
	secret(ctx, workersNS, "nats", map[string]string{"password": work})

	kubectl(ctx, "apply", "--server-side", "-k", productionOverlay())
	kubectl(ctx, "apply", "-k", overlay("ledger", manifests+"/ledger", map[string]string{"redis": config.redis}, besideLedger))
	kubectl(ctx, "apply", "-k", overlay("workers", manifests+"/workers",
		map[string]string{"syncopate-worker": config.worker, "tally": config.tally}, besideWorkers))
	established(ctx)
	allReady(ctx)
}

// allReady waits until each part has all that it should have.
func allReady(ctx context.Context) {
	GinkgoHelper()
	for _, ns := range []string{natsNS, ledgerNS} {
		kubectl(ctx, "-n", ns, "rollout", "status", "statefulset", waitFlag)
	}
	// Its pods are replaced by hand only, so it has no rollout that kubectl would wait for.
	kubectl(ctx, "-n", redisNS, "wait", "--for=jsonpath={.status.readyReplicas}=3", waitFlag, "statefulset/redis")
	kubectl(ctx, "-n", operatorNS, "rollout", "status", "deployment", waitFlag)
	kubectl(ctx, "-n", workersNS, "rollout", "status", "deployment", waitFlag)
}

// otherNodes are the nodes that something may happen to.
func otherNodes(ctx context.Context) (names []string) {
	GinkgoHelper()
	var nodes corev1.NodeList
	Expect(k8s.List(ctx, &nodes)).To(Succeed())
	for i := range nodes.Items {
		if _, is := nodes.Items[i].Labels[controlPlane]; !is {
			names = append(names, nodes.Items[i].Name)
		}
	}
	Expect(names).NotTo(BeEmpty())
	slices.Sort(names)
	return names
}

// podsOn are the pods of the parts on a node, as namespace and name.
func podsOn(ctx context.Context, node string) (pods []client.ObjectKey) {
	GinkgoHelper()
	for _, ns := range []string{operatorNS, natsNS, redisNS} {
		for _, pod := range livePods(ctx, ns, nil) {
			if pod.Spec.NodeName == node {
				pods = append(pods, client.ObjectKeyFromObject(&pod))
			}
		}
	}
	return pods
}

// chain is so many jobs, one after the other.
func (w *world) chain(steps, millis int) (all []v1alpha1.Step) {
	for i := range steps {
		var after []string
		if i > 0 {
			after = []string{all[i-1].Name}
		}
		all = append(all, w.job(fmt.Sprintf("step-%02d", i), millis, after...))
	}
	return all
}

// whileLongRuns has something happen in the middle of long runs, and says for how long one stood
// still. Nothing may be lost, and what counts is counted once; a worker may be given a job again.
func whileLongRuns(ctx context.Context, happens func()) {
	GinkgoHelper()
	w := newWorld(ctx, longRuns)
	w.create(ctx, longRuns, w.chain(longSteps, longMillis)...)
	w.begun(ctx, longRuns*3)
	usual := stoodStill(ctx, w.namespace)
	happens()
	again := 0
	for _, by := range w.nothingLost(ctx, longRuns*longSteps) {
		again += len(by) - 1
	}
	still := stoodStill(ctx, w.namespace)
	AddReportEntry("the longest that a run stood still", still.String())
	AddReportEntry("before that", usual.String())
	AddReportEntry("jobs that workers were given again", again)
	Expect(still).To(BeNumerically("<", stillBound))
}

// wellFromOutside asks the check, which cannot reach NATS and Redis from here.
func wellFromOutside(ctx context.Context) {
	GinkgoHelper()
	out, _ := try(ctx, "", "go", "run", "./cmd/kubectl-syncopate", "check") // what it cannot tell is an exit code, too
	well := 0
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !strings.HasPrefix(fields[1], "SYN") {
			continue
		}
		if fields[2] != "nats" && fields[2] != "redis" {
			Expect(fields[0]).To(Equal("OK"), out)
			well++
		}
	}
	Expect(well).To(BeNumerically(">", 10), out)
}

// nodes stops or starts a node of kind.
func nodes(ctx context.Context, verb, node string) {
	GinkgoHelper()
	out, err := try(ctx, "", "docker", verb, node)
	Expect(err).NotTo(HaveOccurred(), out)
}

var _ = Describe("Syncopate as in examples/production", Label(production), Ordered, ContinueOnFailure, func() {
	JustAfterEach(func(ctx context.Context) {
		if CurrentSpecReport().Failed() {
			dump(ctx)
		}
	}, NodeTimeout(specTimeout))

	It("each node has one of each, and the check finds nothing wrong", func(ctx context.Context) {
		for _, node := range otherNodes(ctx) {
			Expect(podsOn(ctx, node)).To(HaveLen(3))
		}
		w := newWorld(ctx, 4)
		w.create(ctx, 8, w.all(jobMillis)...)
		w.nothingLostNothingTwice(ctx, 8*jobsOfAll)
		wellFromOutside(ctx)
	}, SpecTimeout(specTimeout))

	It("the operator is rolled out again under long runs", func(ctx context.Context) {
		whileLongRuns(ctx, func() {
			kubectl(ctx, "-n", operatorNS, "rollout", "restart", "deployment/syncopate")
			kubectl(ctx, "-n", operatorNS, "rollout", "status", "deployment/syncopate", waitFlag)
		})
	}, SpecTimeout(specTimeout))

	It("the operator's pod on a node is deleted by force", func(ctx context.Context) {
		whileLongRuns(ctx, func() {
			for _, pod := range podsOn(ctx, otherNodes(ctx)[0]) {
				if pod.Namespace == operatorNS {
					kill(ctx, pod.Namespace, pod.Name)
				}
			}
		})
		allReady(ctx)
	}, SpecTimeout(specTimeout))

	rotations()

	It("all pods of a node are deleted by force", func(ctx context.Context) {
		whileLongRuns(ctx, func() {
			for _, pod := range podsOn(ctx, otherNodes(ctx)[0]) {
				kill(ctx, pod.Namespace, pod.Name)
			}
		})
		allReady(ctx)
	}, SpecTimeout(specTimeout))

	It("a node is drained, and comes back", func(ctx context.Context) {
		node := otherNodes(ctx)[0]
		whileLongRuns(ctx, func() {
			kubectl(ctx, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", waitFlag)
		})
		kubectl(ctx, "uncordon", node)
		allReady(ctx)
	}, SpecTimeout(specTimeout))

	It("a node stops, and comes back", func(ctx context.Context) {
		node := otherNodes(ctx)[len(otherNodes(ctx))-1]
		whileLongRuns(ctx, func() { nodes(ctx, "kill", node) })
		nodes(ctx, "start", node)
		kubectl(ctx, "wait", "--for=condition=Ready", waitFlag, "node/"+node)
		allReady(ctx)
		w := newWorld(ctx, 4)
		for _, pod := range podsOn(ctx, node) {
			if pod.Namespace == operatorNS {
				w.crashed = pod.Name // it was started again with its node
			}
		}
		w.create(ctx, 8, w.all(jobMillis)...)
		w.nothingLostNothingTwice(ctx, 8*jobsOfAll)
	}, SpecTimeout(specTimeout))
})
