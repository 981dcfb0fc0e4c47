// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func TestSimulate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	polls := write("polls.yaml", "apiVersion: syncopate.dev/v1alpha1\nkind: LockPolicy\nmetadata: {name: x}\nspec: {workloadClasses: [x], runLock: {wait: {mode: Poll}}}\n")
	other := write("other.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")
	foreign := write("foreign.yaml", "apiVersion: example.org/v1\nkind: LockPolicy\nmetadata: {name: x}\nspec: {workloadClasses: [x]}\n")
	typo := write("typo.yaml", "kind: LockPolicy\nspec: {workloadClass: [x]}\n")
	unknown, quiet, busy := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "unknown"}}, &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "quiet"}}, &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "busy"}}
	unknown.Status = &v1alpha1.LockPolicyStatus{} // as that of a policy which shares the series of others
	quiet.Status = &v1alpha1.LockPolicyStatus{Contention: &v1alpha1.LockContention{}}
	busy.Status = &v1alpha1.LockPolicyStatus{Contention: &v1alpha1.LockContention{P95LockWaitMillis: 480}}
	tests := map[string]struct {
		args []string
		want []string
	}{
		"beside what was measured":   {[]string{"-f", polls, "--from", "lockpol/busy"}, []string{"in force    505.7ms", "candidate   2.", "measured in the last 30 s: 480ms; predicted: 480.1ms"}},
		"nothing was measured":       {[]string{"-f", polls, "--from", "lockpol/quiet", "--contenders", "10"}, []string{"in force", "No lock wait of quiet was measured", "cannot be said"}},
		"it is not known":            {[]string{"-f", polls, "--from", "lockpol/unknown"}, []string{"in force", "What lock waits of unknown were in the last 30 s is not known", "cannot be said"}},
		"no file":                    {[]string{"--from", "lockpol/busy"}, []string{"need -f FILE"}},
		"a file that is not there":   {[]string{"-f", dir + "/none", "--from", "lockpol/busy"}, []string{"read policy"}},
		"another kind":               {[]string{"-f", other, "--from", "lockpol/busy"}, []string{"no LockPolicy in it"}},
		"another group":              {[]string{"-f", foreign, "--from", "lockpol/busy"}, []string{"no LockPolicy in it"}},
		"a field that is unknown":    {[]string{"-f", typo, "--from", "lockpol/busy"}, []string{"unknown field"}},
		"another reference":          {[]string{"-f", polls, "--from", "busy"}, []string{"need lockpol/NAME"}},
		"a policy that is not there": {[]string{"-f", polls, "--from", "lockpol/none"}, []string{"not found"}},
		"nobody contends":            {[]string{"-f", polls, "--from", "lockpol/busy", "--contenders", "0"}, []string{"must be above 0"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t, unknown, quiet, busy)
			out, errOut, err := p.call(append([]string{"simulate"}, test.args...)...)
			if out += errOut; err != nil {
				out += err.Error()
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in:\n%s", want, out)
				}
			}
		})
	}
}
