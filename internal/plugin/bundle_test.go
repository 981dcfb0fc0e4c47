// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bundle"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

const planted = "PLANTED"

// What is shown of each object is tested in internal/bundle. Here, what is in the stores, the
// environment and the command line is planted.
//
// mutation: gather that adds a whole object, or the password of an address, makes this fail: it was
// tried with the key of a run, and with the address of NATS.
func TestSupportBundle_HasNoSecretsAndNoPayloads(t *testing.T) {
	run := testRun("team-a", "report", "11111111-2222-3333-4444-555555555555")
	run.Annotations = map[string]string{"note": planted}
	run.Labels = map[string]string{"label": planted}
	run.Spec.Inputs = &runtime.RawExtension{Raw: []byte(`{"token": "` + planted + `"}`)}
	run.Spec.IdempotencyKey = planted
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "syncopate-system", Name: "syncopate-result-keys"}, Data: map[string][]byte{"k": []byte(planted)}}
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "syncopate-system", Name: "other"}, Data: map[string]string{"k": planted}}
	p, redis := newPlugin(t, run, secret, other), redistest.Start(t)
	p.config = func() (*rest.Config, string, error) {
		return &rest.Config{Host: "http://127.0.0.1:1", BearerToken: planted}, "default", nil
	}
	p.env = map[string]string{"NATS_PASSWORD": planted, "REDIS_PASSWORD": ""}
	server := natstest.Start(t)
	conn := bustest.Connect(t, bus.Config{URL: server.URL()})
	bustest.Eventually(t, "streams", func() bool { return conn.EnsureStreams(t.Context()) == nil })
	bustest.PublishRaw(t, conn, conn.Names.Job("t", job(string(run.UID), 1)), `{"input":"`+planted+`"}`, "Syncopate-Token", planted)
	if err := redis.Client().Set(t.Context(), "{run:"+string(run.UID)+"}:lock", planted, 0).Err(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	address := strings.Replace(server.URL(), "nats://", "nats://user:"+planted+"@", 1)
	line := []string{"support-bundle", "-o", file, "--redis-addrs", redis.Addr(), "--nats-url", address}
	out := p.must(line...)
	all := unpackFile(t, file)
	for name, text := range all {
		if strings.Contains(text, planted) {
			t.Errorf("%s:\n%s", name, text)
		}
	}
	if strings.Contains(out, planted) || !strings.Contains(out, "FILE") || !strings.Contains(all["support-bundle/runs.json"], `"fetch"`) ||
		!strings.Contains(all["support-bundle/audit.json"], "RunLockLeft") || !strings.Contains(all["support-bundle/nats.json"], "JOBS") {
		t.Errorf("%s\n%v", out, all)
	}
	if _, _, err := p.call(line...); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that is there: %v", err)
	}
}

// A password that the library cannot read, and a token, are in no file and in no note
// of the contents.
//
// mutation: url.URL's Redacted in WithoutUser, or a Config whose address the library may quote,
// makes this fail.
func TestSupportBundle_HasNoSecretOfAnAddressThatDoesNotAnswer(t *testing.T) {
	for name, c := range map[string]struct{ address, want string }{
		"a password":          {"nats://user:" + planted + "@127.0.0.1:1", "NATS at nats://127.0.0.1:1 does not answer"},
		"a token":             {"nats://" + planted + "@127.0.0.1:1", "NATS at nats://127.0.0.1:1 does not answer"},
		"no readable address": {"nats://u:" + planted + "%zz@127.0.0.1:1", "NATS at (unreadable) does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // an audit waits between its looks
			out, all := bundleOfNothing(t, c.address)
			if !strings.Contains(all["support-bundle/check.json"], c.want) || !strings.Contains(all["support-bundle/contents.txt"], "audit.json") {
				t.Errorf("%s\n%s", out, all["support-bundle/check.json"])
			}
			all["what is printed"] = out
			for name, text := range all {
				if strings.Contains(text, planted) {
					t.Errorf("%s:\n%s", name, text)
				}
			}
		})
	}
}

// bundleOfNothing is a bundle of objects, where neither check nor audit reaches anything.
func bundleOfNothing(t *testing.T, nats string, objects ...client.Object) (out string, files map[string]string) {
	t.Helper()
	p, file := newPlugin(t, objects...), filepath.Join(t.TempDir(), "bundle.tar.gz")
	p.config = func() (*rest.Config, string, error) { return &rest.Config{Host: "http://127.0.0.1:1"}, "default", nil }
	out = p.must("support-bundle", "-o", file, "--redis-addrs", "127.0.0.1:1", "--nats-url", nats)
	return out, unpackFile(t, file)
}

// A policy has no status before an operator sees it, which is when a bundle is wanted most.
//
// mutation: PolicyOf that reads the conditions of no status makes this fail.
func TestSupportBundle_HasPoliciesThatNoOperatorHasSeen(t *testing.T) {
	_, files := bundleOfNothing(t, "nats://%zz", &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "unseen"}})
	if text := files["support-bundle/policies.json"]; !strings.Contains(text, `"unseen"`) {
		t.Error(text)
	}
}

// mutations: a file that is cut in the middle of a run, ended runs before those under way, or a run
// that is there twice, makes this fail.
func TestSupportBundle_HasWholeRunsAndThoseUnderWayFirst(t *testing.T) {
	var objects []client.Object
	for i := range 2000 {
		run := testRun("team-a", fmt.Sprintf("run-%04d", i), fmt.Sprintf("u-%d", i))
		run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunSucceeded, CompletedAt: &run.CreationTimestamp}
		if i%200 == 199 {
			run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning}
		}
		run.Spec.Steps = slices.Repeat(run.Spec.Steps, 20) // 2 KiB a run
		objects = append(objects, run)
	}
	_, files := bundleOfNothing(t, "nats://%zz", objects...)
	var runs []bundle.Run
	if err := json.Unmarshal([]byte(files["support-bundle/runs.json"]), &runs); err != nil || len(runs) < 100 || len(runs) >= 1000 {
		t.Fatalf("%d runs: %v", len(runs), err)
	}
	names := map[string]bool{}
	for i := range runs {
		if names[runs[i].Name] = true; (runs[i].Phase == "Running") != (i < 10) {
			t.Errorf("run %d is %s: %s", i, runs[i].Name, runs[i].Phase)
		}
	}
	if len(names) != len(runs) {
		t.Errorf("of %d runs %d are there twice", len(runs), len(runs)-len(names))
	}
	contents := files["support-bundle/contents.txt"]
	if want := fmt.Sprintf("cut: the first %d of 1000", len(runs)); !strings.Contains(contents, want) || !strings.Contains(contents, "there are more") {
		t.Errorf("it does not say %q:\n%s", want, contents)
	}
}

// Bundles are made when something is wrong: flow control refuses a list, say.
//
// mutation: runs that leaves out all for an error makes this fail.
func TestSupportBundle_HasTheRunsThatCouldBeRead(t *testing.T) {
	run := testRun("team-a", "run", "u-1")
	run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning}
	c := fakeCluster(t, run).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			asked := (&client.ListOptions{}).ApplyOptions(options)
			if _, runs := list.(*v1alpha1.WorkflowRunList); runs && asked.FieldSelector == nil {
				return errors.New("too many requests")
			}
			return c.List(ctx, list) // the fake knows no such selectors
		},
	}).Build()
	var w bundle.Writer
	runs(t.Context(), &w, c)
	var contents strings.Builder
	if err := w.Table(&contents); err != nil {
		t.Fatal(err)
	}
	if text := contents.String(); !strings.Contains(text, "the others could not be read: ") || strings.Contains(text, "missing") {
		t.Error(text)
	}
}

// mutation: run that removes the file for an error only makes this fail.
func TestSupportBundle_LeavesNoHalfFile(t *testing.T) {
	p, file := newPlugin(t), filepath.Join(t.TempDir(), "bundle.tar.gz")
	p.config = func() (*rest.Config, string, error) { panic("a bug") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _, _ = p.call("support-bundle", "-o", file)
	}()
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file: %v", err)
	}
}

func unpackFile(t *testing.T, name string) map[string]string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for archive := tar.NewReader(z); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(data)
	}
}
