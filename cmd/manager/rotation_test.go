// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/testenv"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	root = "../.."
	// rotationPatience ends a hung test; it is no expectation about speed.
	rotationPatience = 2 * time.Minute
	// watchPatience is shorter than the time after which an operator looks without being told.
	watchPatience = keyLookPause / 2
	// account is the operator's; its rights are those of config/rbac.
	account = "system:serviceaccount:" + devenv.OperatorNamespace + ":syncopate"
)

// site is a real API server, NATS and Redis, and operators that are processes.
type site struct {
	t      *testing.T
	env    *devenv.Env
	k8s    client.Client
	js     jetstream.JetStream
	names  protocol.Names
	binary string
	runs   *atomic.Int32 // created so far
}

func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteOn(t, "")
}

// newSiteOn is newSite whose etcd has its data in a directory; empty: in one of its own.
func newSiteOn(t *testing.T, etcdDir string) *site {
	t.Helper()
	binary, err := testenv.Operator(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, binary: binary, names: protocol.Names{Prefix: protocol.DefaultPrefix}, runs: &atomic.Int32{}}
	env, err := devenv.Start(t.Context(), devenv.Options{
		Root: root, Dir: t.TempDir(), RequireReal: os.Getenv("REQUIRE_REDIS") == "1", EtcdDir: etcdDir,
	})
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	s.env = env
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	if s.k8s, err = client.New(env.Config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(env.NATS.URL(), natstest.Patient())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if s.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	s.kubectl("apply", "-f", filepath.Join(root, "config/rbac/service_account.yaml"), "-f", filepath.Join(root, "config/rbac/role.yaml"),
		"-f", filepath.Join(root, "config/rbac/role_binding.yaml"))
	return s
}

func (s *site) assets() string {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir
	}
	return filepath.Join(root, "bin", "k8s")
}

func (s *site) kubectl(args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(s.assets(), "kubectl"), append([]string{"--kubeconfig", s.env.Kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// ruleOf is the number of the rule of the operator's role that names an object.
func (s *site) ruleOf(object string) int {
	s.t.Helper()
	var role rbacv1.Role
	if err := json.Unmarshal([]byte(s.kubectl("-n", devenv.OperatorNamespace, "get", "role", "syncopate", "-o", "json")), &role); err != nil {
		s.t.Fatal(err)
	}
	n := slices.IndexFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.ResourceNames, object) })
	if n < 0 {
		s.t.Fatalf("no rule of the role names %s", object)
	}
	return n
}

// operator starts one with the rights of its account, and waits until it is ready.
func (s *site) operator(name string) *devenv.Manager {
	s.t.Helper()
	text, err := os.ReadFile(s.env.Kubeconfig)
	if err != nil {
		s.t.Fatal(err)
	}
	// An administrator who acts as the account has its rights only.
	as := regexp.MustCompile(`(?m)^( *)(client-key-data: .*)$`).ReplaceAllString(string(text), "$1$2\n${1}as: "+account)
	if as == string(text) {
		s.t.Fatal("the kubeconfig looks different now")
	}
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(as), 0o600); err != nil {
		s.t.Fatal(err)
	}
	m, err := s.env.StartManager(s.t.Context(), s.binary, name, "--kubeconfig", path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := m.Kill(); err != nil {
			s.t.Error(err)
		}
		if log, err := os.ReadFile(m.Log); err == nil && s.t.Failed() {
			s.t.Logf("log of %s:\n%s", name, log)
		}
	})
	ctx, cancel := context.WithTimeout(s.t.Context(), rotationPatience)
	defer cancel()
	if err := m.Ready(ctx); err != nil {
		s.t.Fatal(err)
	}
	return m
}

func (s *site) eventually(what string, done func() bool) {
	s.t.Helper()
	s.within(rotationPatience, what, done)
}

func (s *site) within(d time.Duration, what string, done func() bool) {
	s.t.Helper()
	deadline := time.After(d)
	for !done() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			s.t.Fatalf("not within %s: %s", d, what)
		}
	}
}

// dispatched is a run of one step, whose job a worker has taken.
type dispatched struct {
	run   string
	id    protocol.JobID
	token string
	reply string
	msg   jetstream.Msg
}

// dispatch creates a run and takes its job.
func (s *site) dispatch(adjust ...func(*v1alpha1.WorkflowRunSpec)) dispatched {
	s.t.Helper()
	n := s.runs.Add(1)
	topic := fmt.Sprintf("rotation.t%d", n)
	run := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("run-%d", n)},
		Spec: v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{{
			Name: "work", Job: &v1alpha1.Job{Topic: topic}, StartTimeoutSeconds: 600,
		}}},
	}
	for _, f := range adjust {
		f(&run.Spec)
	}
	if err := s.k8s.Create(s.t.Context(), run); err != nil {
		s.t.Fatal(err)
	}
	var m jetstream.Msg
	s.eventually("a job of "+topic, func() bool {
		c, err := s.js.Consumer(s.t.Context(), s.names.JobsStream(), protocol.Durable(topic))
		if err != nil {
			return false
		}
		m, err = c.Next(jetstream.FetchMaxWait(time.Second))
		return err == nil
	})
	id, err := protocol.ParseJobID(m.Headers().Get(protocol.HeaderMsgID))
	if err != nil {
		s.t.Fatal(err)
	}
	return dispatched{run: run.Name, id: id, token: m.Headers().Get(protocol.HeaderToken), reply: m.Headers().Get(protocol.HeaderReply), msg: m}
}

// answer publishes a result of a job.
func (s *site) answer(j dispatched, token string) {
	s.t.Helper()
	m := nats.NewMsg(j.reply)
	m.Data = []byte(`{"status":"Succeeded"}`)
	m.Header.Set(protocol.HeaderToken, token)
	m.Header.Set(protocol.HeaderMsgID, protocol.ResultMsgID(j.id, token))
	if _, err := s.js.PublishMsg(s.t.Context(), m); err != nil {
		s.t.Fatal(err)
	}
}

// succeeds answers a job as its worker does; the run succeeds.
func (s *site) succeeds(j dispatched, token string) {
	s.t.Helper()
	s.answer(j, token)
	if err := j.msg.Ack(); err != nil {
		s.t.Fatal(err)
	}
	s.eventually(j.run+" succeeds", func() bool { return s.phase(j) == v1alpha1.RunSucceeded })
}

func (s *site) phase(j dispatched) v1alpha1.RunPhase {
	s.t.Helper()
	run := &v1alpha1.WorkflowRun{}
	if err := s.k8s.Get(s.t.Context(), client.ObjectKey{Namespace: "default", Name: j.run}, run); err != nil {
		s.t.Fatal(err)
	}
	if run.Unwritten() {
		return v1alpha1.RunPending
	}
	return run.Status.Phase
}

// refused says that the answer to a job becomes a dead letter, and moves nothing.
func (s *site) refused(j dispatched, token string) {
	s.t.Helper()
	before := s.rejected()
	s.answer(j, token)
	s.eventually("the forgery is put aside", func() bool { return s.rejected() == before+1 })
	if phase := s.phase(j); phase != v1alpha1.RunRunning {
		s.t.Errorf("%s is %s", j.run, phase)
	}
}

// rejected counts the dead letters of that reason.
func (s *site) rejected() uint64 {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), s.names.DeadLettersStream())
	if err != nil {
		s.t.Fatal(err)
	}
	info, err := stream.Info(s.t.Context(), jetstream.WithSubjectFilter(s.names.Prefix+".deadletters.rejected.>"))
	if err != nil {
		s.t.Fatal(err)
	}
	var n uint64
	for _, count := range info.State.Subjects {
		n += count
	}
	if n != info.State.Msgs {
		s.t.Fatalf("%d of %d dead letters are of another reason", info.State.Msgs-n, info.State.Msgs)
	}
	return n
}

// keys are those in the Secret.
func (s *site) keys() keys.Keyring {
	s.t.Helper()
	ring, err := readKeys(s.t.Context(), s.k8s, devenv.OperatorNamespace)
	if err != nil {
		s.t.Fatal(err)
	}
	return ring
}

// rotate runs the commands of docs/security.md.
func (s *site) rotate() keys.Keyring {
	s.t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		s.t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)## Rotation.*?```bash\n(.*?)```").FindSubmatch(page)
	if block == nil {
		s.t.Fatal("docs/security.md shows no commands")
	}
	before := s.keys()
	assets, err := filepath.Abs(s.assets())
	if err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the clock has moved on for an id of its own", func() bool { return time.Now().UTC().Format("20060102T150405Z") != before.Current.ID })
	cmd := exec.CommandContext(s.t.Context(), "bash", "-euo", "pipefail", "-c", string(block[1]))
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.env.Kubeconfig, "PATH="+assets+string(os.PathListSeparator)+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	after := s.keys()
	if diff := cmp.Diff(before.Current, after.Previous); diff != "" || after.Current.ID == before.Current.ID {
		s.t.Fatalf("previous key (-want +got):\n%s", diff)
	}
	return after
}

// follows waits until an operator uses the keys.
func (s *site) follows(m *devenv.Manager, ring keys.Keyring) {
	s.t.Helper()
	want := map[string]string{"current": ring.Current.ID, "previous": ring.Previous.ID}
	s.within(watchPatience, "the operator uses "+ring.Current.ID, func() bool { return cmp.Equal(want, s.labels(m, "syncopate_result_keys")) })
}

// usable is what an operator says of the Secret.
func (s *site) usable(m *devenv.Manager) bool {
	s.t.Helper()
	for _, metric := range s.scrape(m, "syncopate_result_keys_usable").GetMetric() {
		return metric.GetGauge().GetValue() == 1
	}
	return false
}

func (s *site) labels(m *devenv.Manager, name string) map[string]string {
	s.t.Helper()
	labels := map[string]string{}
	for _, metric := range s.scrape(m, name).GetMetric() {
		for _, l := range metric.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
	}
	return labels
}

func (s *site) logged(m *devenv.Manager, what string) bool {
	s.t.Helper()
	log, err := os.ReadFile(m.Log)
	if err != nil {
		s.t.Fatal(err)
	}
	// The logger's quotes are escaped, those of klog are not.
	return strings.Contains(strings.ReplaceAll(string(log), `\`, ""), what)
}

// patch changes entries of the Secret; nil removes one.
func (s *site) patch(entries map[string]any) {
	s.t.Helper()
	data, err := json.Marshal(map[string]any{"data": entries})
	if err != nil {
		s.t.Fatal(err)
	}
	s.kubectl("-n", devenv.OperatorNamespace, "patch", "secret", keySecret, "--type=merge", "-p", string(data))
}

func encoded(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func (s *site) scrape(m *devenv.Manager, name string) *dto.MetricFamily {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+m.Metrics+"/metrics", http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return families[name]
}

// mutation: an operator without followKeys does not follow in time, and one whose role.yaml has no
// watch is refused; one whose bus signs with the keys of the start is found by the new job's token;
// a load that draws new keys for a Secret that is gone, or takes unusable ones, by the broken
// edits; no load by the replica that has not heard.
func TestKeysAreRotatedWhileTheOperatorRuns(t *testing.T) {
	s := newSite(t)
	m := s.operator("first")
	old := s.keys()
	before, across, late := s.dispatch(), s.dispatch(), s.dispatch()

	ring := s.rotate()
	s.follows(m, ring)
	if s.logged(m, "forbidden") {
		t.Error("the operator lacks a right")
	}
	after := s.dispatch()
	if !strings.HasPrefix(after.token, ring.Current.ID+".") {
		t.Errorf("a new job has the token %.20s, the new key is %s", after.token, ring.Current.ID)
	}
	s.succeeds(before, before.token) // mutation: Verify by the current key alone makes this fail
	foreign := keys.Keyring{Current: keys.Key{ID: "k9", Secret: []byte("a key that nobody ever configured")}}
	s.refused(after, foreign.Sign(after.id))
	s.refused(after, before.token)
	s.refused(after, ring.Sign(across.id))

	if err := m.Terminate(t.Context()); err != nil {
		t.Fatal(err)
	}
	m = s.operator("second")
	s.follows(m, ring)
	s.succeeds(across, across.token)
	s.succeeds(after, after.token)

	t.Run("a broken edit changes nothing", func(t *testing.T) {
		for name, entries := range map[string]map[string]any{
			"an entry is missing":   {entryCurrent: nil},
			"a secret is too short": {entryCurrent: encoded([]byte("short"))},
			"an id has a dot":       {entryCurrentID: encoded([]byte("k.3"))},
			"an id has a line end":  {entryCurrentID: encoded([]byte("k3\n"))},
		} {
			t.Run(name, func(t *testing.T) {
				s := s.of(t)
				s.patch(entries)
				s.eventually("it is told, in the log too", func() bool { return !s.usable(m) && s.logged(m, "Result keys cannot be used") })
				j := s.dispatch()
				s.succeeds(j, j.token)
				if !ring.Verify(j.id, j.token) {
					t.Error("signed with another key")
				}
				s.patch(map[string]any{entryCurrentID: encoded([]byte(ring.Current.ID)), entryCurrent: encoded(ring.Current.Secret)})
				s.eventually("it is told that all is well", func() bool { return s.usable(m) })
			})
		}
		t.Run("the Secret is gone", func(t *testing.T) {
			s := s.of(t)
			s.kubectl("-n", devenv.OperatorNamespace, "delete", "secret", keySecret)
			s.eventually("it is told", func() bool { return !s.usable(m) })
			j := s.dispatch()
			s.refused(j, foreign.Sign(j.id))
			s.succeeds(j, j.token)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: devenv.OperatorNamespace, Name: keySecret}, Data: map[string][]byte{
				entryCurrentID: []byte(ring.Current.ID), entryCurrent: ring.Current.Secret,
				entryPreviousID: []byte(ring.Previous.ID), entryPrevious: ring.Previous.Secret,
			}}
			if err := s.k8s.Create(t.Context(), secret); err != nil { // an operator that made it anew makes this fail
				t.Fatal(err)
			}
			s.eventually("it is told that all is well", func() bool { return s.usable(m) })
		})
	})

	t.Run("a token of two rotations ago is refused", func(t *testing.T) {
		s := s.of(t)
		s.follows(m, s.rotate())
		if !old.Verify(late.id, late.token) {
			t.Fatal("not the job of the first key")
		}
		s.refused(late, late.token)
	})

	t.Run("a replica that has not heard of the new key accepts it, and nothing that it signed itself is lost", func(t *testing.T) {
		s := s.of(t)
		if err := m.Terminate(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Without the right to watch it finds out by itself a minute later at the soonest.
		s.kubectl("-n", devenv.OperatorNamespace, "patch", "role", "syncopate", "--type=json", "-p",
			fmt.Sprintf(`[{"op":"replace","path":"/rules/%d/verbs","value":["get"]}]`, s.ruleOf(keySecret)))
		m := s.operator("deaf")
		s.eventually("its watch is refused", func() bool { return s.logged(m, `secrets "`+keySecret+`" is forbidden`) })
		behind, other := s.dispatch(), s.dispatch()
		ring := s.rotate()
		s.succeeds(behind, ring.Sign(behind.id)) // as if a replica that knows the new key had dispatched it
		s.succeeds(other, other.token)
		s.follows(m, ring)
	})
}

// of is the site in a subtest.
func (s *site) of(t *testing.T) *site {
	of := *s
	of.t = t
	return &of
}
