// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/testenv/certs"
)

// accountsOfThePage is what the command of docs/production.md prints.
func accountsOfThePage(t *testing.T) []byte {
	t.Helper()
	command := regexp.MustCompile(`kubectl syncopate (permissions nats[a-z -]*)\| kubectl`).FindStringSubmatch(commandsOf(t))
	if command == nil {
		t.Fatal("no command of the page prints accounts")
	}
	out, err := run(nil, "go", append([]string{"run", "./cmd/kubectl-syncopate"}, strings.Fields(command[1])...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// productionConfig is the configuration of examples/production at another place, as the first
// server reads it. A password is the key that it has in its Secret.
func productionConfig(t *testing.T, files *certs.Files) *natsserver.Options {
	t.Helper()
	var c corev1.ConfigMap
	var set appsv1.StatefulSet
	findObject(t, production(t), "ConfigMap", "nats", "nats", &c)
	findObject(t, production(t), "StatefulSet", "nats", "nats", &set)
	text := strings.NewReplacer("/etc/nats-tls/tls.crt", files.Cert, "/etc/nats-tls/tls.key", files.Key, "/etc/nats-tls/ca.crt", files.CA).Replace(c.Data["nats.conf"])
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "accounts"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{"nats.conf": text, "accounts/accounts.conf": string(accountsOfThePage(t))} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var earlier []string // as the kubelet has it, a value may have variables that are before it
	for _, v := range set.Spec.Template.Spec.Containers[0].Env {
		value := strings.NewReplacer(earlier...).Replace(v.Value)
		if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
			value = v.ValueFrom.SecretKeyRef.Key
		}
		if v.Name == "POD_NAME" {
			value = "nats-0"
		}
		t.Setenv(v.Name, value)
		earlier = append(earlier, "$("+v.Name+")", value)
	}
	read, err := natsserver.ProcessConfigFile(filepath.Join(dir, "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// productionNATS is one server with that configuration, without the other two.
func productionNATS(t *testing.T, files *certs.Files) *natstest.Server {
	t.Helper()
	read := productionConfig(t, files)
	return natstest.Start(t, func(o *natsserver.Options) {
		o.Accounts, o.Users, o.TLS, o.TLSConfig, o.TLSVerify = read.Accounts, read.Users, read.TLS, read.TLSConfig, read.TLSVerify
	})
}

// inCluster starts a server with the cluster's part of a configuration. It has routes to the
// others, with the login that its configuration has for its first one.
func inCluster(t *testing.T, name string, config *natsserver.Options, others ...*natsserver.Server) *natsserver.Server {
	t.Helper()
	o := &natsserver.Options{ServerName: name, Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, Cluster: config.Cluster}
	o.Cluster.Host, o.Cluster.Port = "127.0.0.1", -1
	for _, other := range others {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: other.ClusterAddr().String(), User: config.Routes[0].User})
	}
	s, err := natsserver.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatalf("%s does not start", name)
	}
	return s
}

// refusals counts what a server refuses.
type refusals struct {
	natsserver.Logger
	count atomic.Int32
}

func (r *refusals) Noticef(string, ...any) {}
func (r *refusals) Warnf(string, ...any)   {}
func (r *refusals) Errorf(format string, _ ...any) {
	if strings.Contains(format, "authentication error") {
		r.count.Add(1)
	}
}

// othersOf is how many servers one has routes with; there are several routes between two.
func othersOf(t *testing.T, s *natsserver.Server) int {
	t.Helper()
	routes, err := s.Routez(nil)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, r := range routes.Routes {
		names[r.RemoteName] = true
	}
	return len(names)
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// A route passes by the rights of all users, and each worker has a certificate of the authority: a
// server is one of the cluster by its login. Servers that have none yet, as while an installation
// is restarted with it, have routes with those that do.
// mutations: a cluster without authorization makes this fail, as does a NATS_ROUTES without login.
func TestAWorkerIsNoServerOfTheProductionExample(t *testing.T) {
	authority := certs.NewAuthority(t)
	login := productionConfig(t, authority.Issue(time.Hour))
	if len(login.Routes) != 3 || login.Routes[2].Host != "nats-2.nats.nats.svc:6222" {
		t.Errorf("routes are %v", login.Routes)
	}
	none := productionConfig(t, authority.Issue(time.Hour, "worker"))
	none.Cluster.Username, none.Cluster.Password = "", ""
	for _, r := range none.Routes {
		r.User = nil
	}
	first := inCluster(t, "first", login)
	var refused refusals
	first.SetLogger(&refused, false, false)
	inCluster(t, "worker", none, first)
	eventually(t, "the worker is refused", func() bool { return refused.count.Load()+int32(first.NumRoutes()) > 0 })
	if n := first.NumRoutes(); n != 0 {
		t.Errorf("a worker has %d routes", n)
	}
	second := inCluster(t, "second", login, first)
	eventually(t, "servers with the login find each other", func() bool { return first.NumRoutes() > 0 && second.NumRoutes() > 0 })

	before := inCluster(t, "before", none)
	after := inCluster(t, "after", login, before)
	refusedOne := inCluster(t, "before-too", none, before, after)
	eventually(t, "a server that was restarted is in a cluster with two that were not", func() bool {
		return othersOf(t, before) == 2 && othersOf(t, after) == 2 && othersOf(t, refusedOne) == 2
	})
}

// answer is what is said to a user's request: nothing where a permission is missing, or where
// nobody listens in the user's account.
func answer(t *testing.T, nc *nats.Conn, subject string) string {
	t.Helper()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest(subject, inbox, nil); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if refused := nc.LastError(); refused != nil { // the server says it before it answers the Flush
		return ""
	}
	m, err := sub.NextMsg(30 * time.Second)
	if errors.Is(err, nats.ErrNoResponders) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(m.Data)
}

// What docs/production.md and the runbooks have people do, as `nats stream rm` and `nats server
// report jetstream`, some user of the example may do; those of programs may not.
// The user system asks, and has no server end connections.
// mutations: --admin taken from the page makes this fail, as does an admin without the right to
// $JS.API.>, a system user in the account of the streams, or one that may publish to all of $SYS.
func TestPeopleHaveUsersInTheNATSOfTheProductionExample(t *testing.T) {
	files := certs.NewAuthority(t).Issue(time.Hour)
	s := productionNATS(t, files)
	for user, may := range map[string]struct{ password, subject string }{
		"operator": {password: "operator"}, "worker": {password: "worker"},
		"admin":  {password: "admin", subject: "$JS.API.STREAM.DELETE.NONE"},
		"system": {password: "admin", subject: "$SYS.REQ.SERVER.PING.JSZ"},
	} {
		for subject, done := range map[string]string{"$JS.API.STREAM.DELETE.NONE": "stream not found", "$SYS.REQ.SERVER.PING.JSZ": `"store_dir"`} {
			nc, err := nats.Connect(s.URL(), nats.UserInfo(user, may.password), nats.Secure(files.Client(t)), natstest.Patient())
			if err != nil {
				t.Errorf("%s: %v", user, err)
				continue
			}
			if said := answer(t, nc, subject); strings.Contains(said, done) != (subject == may.subject) {
				t.Errorf("%s hears at %s: %q", user, subject, said)
			}
			nc.Close()
		}
	}
	nc, err := nats.Connect(s.URL(), nats.UserInfo("system", "admin"), nats.Secure(files.Client(t)), natstest.Patient())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, verb := range []string{"KICK", "RELOAD"} {
		answer(t, nc, "$SYS.REQ.SERVER."+nc.ConnectedServerId()+"."+verb)
		if err := nc.LastError(); !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), verb) {
			t.Errorf("%s by the user system: %v", verb, err)
		}
	}
}

// hostsOf are the names for which a certificate of the example is made.
func hostsOf(t *testing.T, namespace, name string) *x509.Certificate {
	t.Helper()
	var c struct {
		Spec struct {
			DNSNames    []string `json:"dnsNames"`
			IPAddresses []string `json:"ipAddresses"`
		} `json:"spec"`
	}
	findObject(t, production(t), "Certificate", namespace, name, &c)
	cert := &x509.Certificate{DNSNames: c.Spec.DNSNames}
	for _, ip := range c.Spec.IPAddresses {
		cert.IPAddresses = append(cert.IPAddresses, net.ParseIP(ip))
	}
	return cert
}

// A port-forward ends at this machine, and clients verify the name that they were given.
// mutation: localhost or 127.0.0.1 taken from a Certificate makes this fail.
func TestTheServersOfTheProductionExampleAreReachedByPortForward(t *testing.T) {
	for part, hosts := range map[string][]string{
		"nats":  {"nats-0.nats.nats.svc", "nats.nats.svc", "localhost", "127.0.0.1"},
		"redis": {"redis-0.redis.redis.svc", "localhost", "127.0.0.1"},
	} {
		cert := hostsOf(t, part, part)
		for _, host := range hosts {
			if err := cert.VerifyHostname(host); err != nil {
				t.Errorf("%s: %v", part, err)
			}
		}
	}
}

// workerOfTheExample is the Deployment of worker.yaml, which the API server takes.
func workerOfTheExample(t *testing.T) corev1.Container {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot, "examples", "production", "worker.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	findObject(t, objects(t, text), "Deployment", "", "worker", &d)
	d.Namespace = "default"
	if err := server.client.Create(t.Context(), d.DeepCopy(), client.DryRunAll); err != nil {
		t.Error(err)
	}
	var c struct {
		Spec struct {
			Usages []string `json:"usages"`
		} `json:"spec"`
	}
	findObject(t, objects(t, text), "Certificate", "", "worker", &c)
	if !slices.Contains(c.Spec.Usages, "client auth") {
		t.Errorf("its certificate is for %q", c.Spec.Usages)
	}
	leavesInTime(t, d.Spec.Template.Spec)
	return d.Spec.Template.Spec.Containers[0]
}

// leavesInTime wants a worker to end, with what follows its grace period, before its pod is killed.
//
// mutations: a worker.yaml without GRACE_SECONDS, or with that of the pod, makes this fail.
func leavesInTime(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	const after = 15 // seconds, as docs/workers.md says
	for _, e := range pod.Containers[0].Env {
		if e.Name != "GRACE_SECONDS" {
			continue
		}
		seconds, err := strconv.ParseInt(e.Value, 10, 64)
		if all := ptr.Deref(pod.TerminationGracePeriodSeconds, 30); err != nil || seconds+after > all {
			t.Errorf("%s=%s, and the pod has %d s", e.Name, e.Value, all)
		}
		return
	}
	t.Error("the worker breaks its jobs off before the pod's grace period is over")
}

// A worker beside the example has a certificate of its authority, and finds all servers.
// mutations: a variable that examples/worker-go does not read makes this fail, as does a host that
// the certificate of NATS does not name, a Certificate without client auth, or a path at which
// nothing is mounted.
func TestAWorkerReachesTheNATSOfTheProductionExample(t *testing.T) {
	container, nats := workerOfTheExample(t), hostsOf(t, "nats", "nats")
	source, err := os.ReadFile(filepath.Join(moduleRoot, "examples", "worker-go", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range container.Env {
		if !regexp.MustCompile(`[gG]etenv\("` + v.Name + `"\)`).Match(source) {
			t.Errorf("worker-go does not read %s", v.Name)
		}
		switch v.Name {
		case "NATS_URL":
			for address := range strings.SplitSeq(v.Value, ",") {
				u, err := url.Parse(address)
				if err != nil {
					t.Fatal(err)
				}
				if err := nats.VerifyHostname(u.Hostname()); err != nil {
					t.Error(err)
				}
			}
		case "NATS_CA", "NATS_CERT", "NATS_KEY":
			if filepath.Dir(v.Value) != container.VolumeMounts[0].MountPath {
				t.Errorf("nothing is mounted at %s", v.Value)
			}
		}
	}
}

// The steps to a worker that is not trusted are for the image of worker.yaml.
//
// mutations: a topic that the image does not do, and a variable that it does not read, make this
// fail.
func TestTheWorkerThatIsNotTrustedDoesWhatItsImageDoes(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(moduleRoot, "docs", "production.md"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(moduleRoot, "examples", "worker-go", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, steps, _ := strings.Cut(string(guide), "### A worker that is not trusted\n")
	steps, _, _ = strings.Cut(steps, "\n## ")
	account := regexp.MustCompile(`--topics (\S+) --confined (\S+)`).FindStringSubmatch(steps)
	if account == nil {
		t.Fatal("no step prints the account")
	}
	if !strings.Contains(string(source), strconv.Quote(account[1])+":") {
		t.Errorf("worker-go has no topic %s", account[1])
	}
	for name, value := range map[string]string{
		"NATS_USER": strings.Replace(account[2], "_INBOX_", "worker-", 1), "INBOX_PREFIX": account[2], "NO_OBJECT_STORE": `"1"`, "TOPICS": account[1],
	} {
		if !strings.Contains(steps, "`"+name+"` `"+value+"`") {
			t.Errorf("no step sets %s to %s", name, value)
		}
		if !regexp.MustCompile(`[gG]etenv\("` + name + `"\)`).Match(source) {
			t.Errorf("worker-go does not read %s", name)
		}
	}
}
