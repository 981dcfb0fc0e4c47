// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/audit"
	"github.com/syncopate-dev/syncopate/internal/check"
)

// harm is what a terminal takes for a command, or draws in another order. The last byte
// is no UTF-8.
const harm = "\u007f\u009b31m\u202e\u2028\U000e0001\x9b"

// A worker's output may not command the terminal of who looks at it. mutation: the bytes as they
// are, or a value that is another one, makes this fail.
func TestJSONOfWorkersDoesNotCommandTheTerminal(t *testing.T) {
	t.Parallel()
	raw := []byte("{\n\t\"" + harm + `": "é\n` + harm + `"}`)
	run := testRun("team-a", "report", "uid-1")
	run.Status = &v1alpha1.WorkflowRunStatus{Outputs: &runtime.RawExtension{Raw: raw}}
	var out strings.Builder
	a := &app{Env: Env{Out: &out}}
	(&workflows{a}).tellOutputs(run)
	harmless(t, out.String(), raw)
	out.Reset()
	if err := a.writeJSON(json.RawMessage(raw)); err != nil {
		t.Fatal(err)
	}
	harmless(t, out.String(), raw)
}

func harmless(t *testing.T, text string, raw []byte) {
	t.Helper()
	if strings.ContainsAny(text, harm[:1]+"\u009b\u202e\u2028\U000e0001") || !utf8.ValidString(text) || !strings.Contains(text, "é") {
		t.Errorf("it has %q", text)
	}
	var want, got any
	if err := errors.Join(json.Unmarshal(raw, &want), json.Unmarshal([]byte(text), &got)); err != nil || !reflect.DeepEqual(want, got) {
		t.Errorf("%q is not %q: %v", got, want, err)
	}
}

// mutation: blanks put together and nothing else makes this fail.
func TestErrorsDoNotCommandTheTerminal(t *testing.T) {
	t.Parallel()
	if got := OneLine(errors.New("no\n" + harm + " luck")); got != "no 31m ? luck" {
		t.Errorf("%q", got)
	}
}

// What an audit found quotes keys of Redis, and what servers answered.
//
// mutations: a message, what became of a repair, or why a store is unread, as it is,
// makes this fail.
func TestAuditsDoNotCommandTheTerminal(t *testing.T) {
	t.Parallel()
	const said = "no\n" + harm + "\x1b luck"
	told := &auditTold{Mended: []string{mendedText(errors.New(said))}}
	told.Findings, told.Unread = []audit.Finding{{Message: said}}, map[audit.Part]string{"slots": said}
	for _, format := range []string{formatTable, formatJSON} {
		var out strings.Builder
		if err := told.tell(&app{Env: Env{Out: &out}}, format); err == nil || format == formatTable && strings.Count(out.String(), "no 31m ? luck") != 3 ||
			strings.ContainsAny(out.String(), "\x1b\u009b\u202e") {
			t.Errorf("%s: %q, %v", format, out.String(), err)
		}
	}
}

// What check found has names of objects, and what servers answered.
//
// mutation: messages as they are, in either format, make this fail.
func TestFindingsDoNotCommandTheTerminal(t *testing.T) {
	t.Parallel()
	findings := []check.Finding{{Code: check.KubernetesVersion, Verdict: check.OK, Message: "no\n" + harm + "\x1b luck"}}
	for _, format := range []string{formatTable, formatJSON} {
		var out strings.Builder
		if err := tell(&out, findings, format); err != nil || !strings.Contains(out.String(), "no 31m ? luck") {
			t.Errorf("%s: %q, %v", format, out.String(), err)
		}
	}
}
