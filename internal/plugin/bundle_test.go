// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

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
	away := filepath.Join(t.TempDir(), "away.tar.gz")
	p.must("support-bundle", "-o", away, "--redis-addrs", redis.Addr(), "--nats-url", "nats://user:"+planted+"@127.0.0.1:1")
	if text := unpackFile(t, away)["support-bundle/check.json"]; strings.Contains(text, planted) || !strings.Contains(text, "NATS at nats://user:xxxxx@127.0.0.1:1") {
		t.Error(text)
	}
	if _, _, err := p.call(line...); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that is there: %v", err)
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
