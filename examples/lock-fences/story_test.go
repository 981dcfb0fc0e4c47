// SPDX-License-Identifier: Apache-2.0

package orders

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const (
	topic    = "demo.orders"
	patience = 2 * time.Minute
	fileEnv  = "ORDERS_DB" // set for a process that is a worker
)

func TestMain(m *testing.M) {
	if os.Getenv(fileEnv) == "" {
		log.SetLogger(logr.Discard()) // of the API server's helper
		os.Exit(m.Run())
	}
	if err := work(); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

// work is a worker in a process of its own. It says with which fence it has begun, waits for a
// line, and says what became of its write.
func work() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	db, err := Open(ctx, os.Getenv(fileEnv))
	if err != nil {
		return err
	}
	nc, err := worker.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		return err
	}
	defer nc.Close()
	in := bufio.NewReader(os.Stdin)
	handle := Handler(db, strings.TrimPrefix(mutex, "mutex:"), func(fence int64) {
		fmt.Println("begun", fence)
		_, _ = in.ReadString('\n')
	})
	w := worker.New(nc, worker.Options{BindInterval: 100 * time.Millisecond})
	w.Handle(topic, func(ctx context.Context, job worker.Job) (any, error) {
		out, err := handle(ctx, job)
		fmt.Println("done", err)
		return out, err
	}, worker.Concurrency(1))
	return w.Run(ctx)
}

// process is a worker.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	input func(string)
}

func startWorker(t *testing.T, nats, file string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), fileEnv+"="+file, "NATS_URL="+nats)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, lines: make(chan string, 100), input: func(s string) {
		if _, err := in.Write([]byte(s)); err != nil {
			t.Error(err)
		}
	}}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be over
		_ = cmd.Wait()
	})
	return p
}

// says waits for a line that begins so, and gives the rest of it.
func (p *process) says(word string) string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		rest, is := strings.CutPrefix(line, word+" ")
		if !ok || !is {
			p.t.Fatalf("the worker says %q, not %s", line, word)
		}
		return rest
	case <-time.After(patience):
		p.t.Fatalf("the worker does not say %s", word)
		return ""
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// world is the operator and what it needs.
type world struct {
	*testing.T
	env *devenv.Env
	k8s client.Client
}

func start(t *testing.T) *world {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		if _, err := os.Stat(devenv.Assets("../..")); err != nil && os.Getenv("REQUIRE_REDIS") == "" {
			t.Skip("there is no kube-apiserver: make controlplane")
		}
	}
	dir := t.TempDir()
	manager := os.Getenv("OPERATOR_BINARY")
	if manager == "" {
		manager = filepath.Join(dir, "manager")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", manager, "./cmd/manager")
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build the operator: %v\n%s", err, out)
		}
	}
	env, err := devenv.Start(t.Context(), devenv.Options{Root: "../..", Dir: dir, RequireReal: os.Getenv("REQUIRE_REDIS") == "1"})
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := env.StartManager(t.Context(), manager, "operator")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := m.Terminate(ctx); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := m.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(env.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &world{T: t, env: env, k8s: c}
}

// run creates a run that writes the order under the lock, in as many attempts.
func (w *world) run(name string, timeout, attempts int32) {
	w.Helper()
	input, err := json.Marshal(Input{Order: "o-1", State: "written by " + name})
	if err != nil {
		w.Fatal(err)
	}
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	run.Spec.Steps = []v1alpha1.Step{{
		Name: "write", Locks: []v1alpha1.LockRequest{{Mutex: "orders"}}, TimeoutSeconds: timeout,
		Retry: v1alpha1.Retry{MaxFailures: attempts},
		Job:   &v1alpha1.Job{Topic: topic, Input: &runtime.RawExtension{Raw: input}},
	}}
	if err := w.k8s.Create(w.Context(), run); err != nil {
		w.Fatal(err)
	}
}

// ends waits for the end of a run and gives its phase.
func (w *world) ends(name string) (phase v1alpha1.RunPhase) {
	w.Helper()
	run := &v1alpha1.WorkflowRun{}
	for deadline := time.Now().Add(patience); ; {
		if err := w.k8s.Get(w.Context(), client.ObjectKey{Namespace: "default", Name: name}, run); err != nil {
			w.Fatal(err)
		}
		if run.Status != nil && run.Status.CompletedAt != nil {
			return run.Status.Phase
		}
		if time.Now().After(deadline) {
			w.Fatalf("run %s does not end: %+v", name, run.Status)
		}
		select {
		case <-w.Context().Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stopped begins run a, whose worker is stopped in the middle of its job, as a machine
// that sleeps is.
func (w *world) stopped(file string, attempts int32) (a *process, fence string) {
	w.Helper()
	a = startWorker(w.T, w.env.NATS.URL(), file)
	w.run("a", 3, attempts)
	fence = a.says("begun")
	a.signal(syscall.SIGSTOP)
	return a, fence
}

// goesOn has the stopped worker go on, and wants the database to refuse it.
func (p *process) goesOn() {
	p.t.Helper()
	p.signal(syscall.SIGCONT)
	p.input("\n")
	if said := p.says("done"); !strings.Contains(said, ErrStale.Error()) {
		p.t.Errorf("a was not refused: %s", said)
	}
}

// writes has a worker do its job, and gives the fence.
func (p *process) writes() (fence string) {
	p.t.Helper()
	fence = p.says("begun")
	p.input("\n")
	if said := p.says("done"); said != "<nil>" {
		p.t.Fatalf("b: %s", said)
	}
	return fence
}

// The step of worker a times out, the lock goes on to run b with a higher fence, and b writes. Then
// a goes on.
//
// mutation: fence.sql without its WHERE makes this fail: a overwrites what b wrote.
func TestAPausedHolderIsRefusedByTheDatabase(t *testing.T) {
	w := start(t)
	file := filepath.Join(t.TempDir(), "orders.db")
	db, err := Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()

	a, fenceA := w.stopped(file, 1) // else the second attempt would keep the lock
	w.run("b", 600, 1)              // waits for the lock
	if phase := w.ends("a"); phase != v1alpha1.RunFailed {
		t.Fatalf("run a, whose worker is stopped, is %s", phase)
	}

	fenceB := startWorker(t, w.env.NATS.URL(), file).writes()
	if phase := w.ends("b"); phase != v1alpha1.RunSucceeded {
		t.Fatalf("run b is %s", phase)
	}
	if len(fenceA) > len(fenceB) || len(fenceA) == len(fenceB) && fenceA >= fenceB {
		t.Errorf("fence %s of b is not above %s of a", fenceB, fenceA)
	}

	a.goesOn()
	var state string
	if err := db.QueryRowContext(t.Context(), "SELECT state FROM orders WHERE id = 'o-1'").Scan(&state); err != nil || state != "written by b" {
		t.Errorf("the order is %q, %v", state, err)
	}
}

// The step of worker a times out and is tried again, under the same fence, and b does that attempt.
// Then a goes on. On a busy machine b may have a later attempt, which is as good.
//
// mutation: attempt.sql without its WHERE makes this fail.
func TestAPausedAttemptIsRefusedByTheDatabase(t *testing.T) {
	w := start(t)
	file := filepath.Join(t.TempDir(), "orders.db")
	a, fenceA := w.stopped(file, 100)
	if fenceB := startWorker(t, w.env.NATS.URL(), file).writes(); fenceB != fenceA {
		t.Errorf("the attempts have the fences %s and %s", fenceA, fenceB)
	}
	a.goesOn()
}
