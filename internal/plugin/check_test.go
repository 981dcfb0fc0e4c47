// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/syncopate-dev/syncopate/internal/check"
)

// nowhere is a command line of check where nothing answers.
func nowhere(more ...string) []string {
	return append([]string{"check", "--nats-url", "nats://127.0.0.1:1", "--redis-addrs", "127.0.0.1:1"}, more...)
}

// The checks themselves are tested in internal/check and internal/check/probe.
func TestCheck_NothingAnswers(t *testing.T) {
	p := newPlugin(t)
	p.config = func() (*rest.Config, string, error) { return &rest.Config{Host: "http://127.0.0.1:1"}, "default", nil }
	out, _, err := p.call(nowhere()...)
	if e, ok := errors.AsType[*CheckError](err); !ok || e.Outcome != check.Unknown || e.Count < 20 {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"VERDICT   CODE", "Unknown   SYN101", "port-forward svc/nats 4222:4222", "port-forward svc/redis 6379:6379"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out, _, _ = p.call(nowhere("--pre", "-o", "json")...)
	var got struct {
		Outcome  check.Verdict
		Findings []check.Finding
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Outcome != check.Unknown || len(got.Findings) == 0 {
		t.Errorf("%v: %s", err, out)
	}
	if out, _, _ = p.call(nowhere("-o", "prometheus")...); !strings.Contains(out, `syncopate_check_verdict{code="SYN101",category="versions"} 3`) {
		t.Error(out)
	}
}

func TestCheck_CommandLinesThatMakeNoSense(t *testing.T) {
	p := newPlugin(t)
	p.config = func() (*rest.Config, string, error) { return &rest.Config{Host: "http://127.0.0.1:1"}, "default", nil }
	file := filepath.Join(t.TempDir(), "secret.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		line  []string
		usage bool
	}{
		"no such format":     {nowhere("-o", "yaml"), true},
		"both":               {nowhere("--pre", "-f", file), true},
		"no such file":       {nowhere("-f", "nowhere.yaml"), false},
		"a file of a Secret": {nowhere("-f", file), false},
		"an argument":        {nowhere("x"), true},
	} {
		_, _, err := p.call(c.line...)
		if _, usage := errors.AsType[*UsageError](err); err == nil || usage != c.usage {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTell(t *testing.T) {
	var out strings.Builder
	findings := []check.Finding{{Verdict: check.Failed}, {Verdict: check.Unknown}, {Verdict: check.Warning}}
	err := tell(&out, findings, formatTable)
	if e, ok := errors.AsType[*CheckError](err); !ok || e.Outcome != check.Failed || e.Count != 1 || e.Error() != "1 checks failed" {
		t.Error(err)
	}
	if err := tell(&out, findings[2:], formatJSON); err != nil {
		t.Errorf("a warning: %v", err)
	}
}
