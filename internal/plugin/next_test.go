// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/cron"
	"github.com/syncopate-dev/syncopate/internal/schedule"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// nextOf is what the command says of the sample on the day before clocks are set.
func nextOf(t *testing.T, args ...string) (out, notes string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := NewCommand(Env{Out: &stdout, Err: &stderr, Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)), Getenv: func(string) string { return "" }})
	cmd.SetArgs(append([]string{"next"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestNextShowsTheSlotsOfAFile(t *testing.T) {
	out, _, err := nextOf(t, "-f", testenv.Root("config", "samples", "schedule.yaml"), "--count", "2")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"SLOT (Europe/Berlin)", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00", "nightly-29579100"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}

func TestNextSaysWhatIsWrong(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("apiVersion: syncopate.dev/v1alpha1\nkind: Schedule\nspec: {cron: [\"61 * * * *\"]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other.yaml")
	if err := os.WriteFile(other, []byte("apiVersion: example.org/v1\nkind: Schedule\nspec: {cron: [\"1 * * * *\"]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		`minute "61"`:    {"-f", bad},
		"need 1 to 1000": {"-f", bad, "--count", "0"},
		"need the name":  {},
		"no such file":   {"-f", bad + "x"},
		"need a Schedule of syncopate.dev/v1alpha1": {"-f", other},
		"need a Schedule": {"-f", testenv.Root("config", "samples", "linear.yaml")},
	} {
		if _, _, err := nextOf(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("next %v: %v, want %s", args, err, want)
		}
	}
}

// A field that the API server would not know has no meaning here either.
//
// mutations: a reader that takes fields without case, or unknown ones, makes this fail.
func TestNextReadsAFileAsTheAPIServerDoes(t *testing.T) {
	for want, spec := range map[string]string{
		`unknown field "spec.timezone"`:     `{cron: ["0 3 * * *"], timezone: Europe/Berlin}`,
		`unknown field "spec.tz"`:           `{cron: ["0 3 * * *"], tz: Europe/Berlin}`,
		`key "timeZone" already set in map`: `{cron: ["0 3 * * *"], timeZone: UTC, timeZone: Europe/Berlin}`,
	} {
		if out, _, err := nextOf(t, "-f", scheduleFile(t, spec)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s\n%s", spec, err, want, out)
		}
	}
}

// mutation: next that does not look at suspend makes this fail.
func TestNextSaysThatAScheduleIsSuspended(t *testing.T) {
	for _, format := range []string{"table", "json"} {
		out, notes, err := nextOf(t, "-o", format, "-f", scheduleFile(t, `{cron: ["0 3 * * *"], suspend: true}`))
		if err != nil || !strings.Contains(out, "2026-03-29T03:00:00Z") || notes != "No run is started now: Suspended.\n" {
			t.Errorf("%s: %q, %q, %v", format, out, notes, err)
		}
	}
}

// A template that is refused for good starts no run, though the schedule is not held. A file may
// be what kubectl says of a schedule.
//
// mutations: StartsNone that does not look at the condition, or that takes what may end without an
// edit, or has it before a hold.
func TestNextSaysThatATemplateIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ status, want string }{
		"for good":           {`{conditions: [{type: Stalled, status: "True", reason: TemplateRefused}]}`, "No run is started now: TemplateRefused.\n"},
		"for now":            {`{conditions: [{type: Stalled, status: "False", reason: TemplateRefused}]}`, ""},
		"for another reason": {`{conditions: [{type: Stalled, status: "True", reason: Paused}]}`, ""},
		"before it was held": {`{held: Paused, conditions: [{type: Stalled, status: "True", reason: TemplateRefused}]}`, "No run is started now: Paused.\n"},
	} {
		out, notes, err := nextOf(t, "-f", scheduleFile(t, `{cron: ["0 3 * * *"]}`+"\nstatus: "+c.status))
		if err != nil || !strings.Contains(out, "2026-03-29T03:00:00Z") || notes != c.want {
			t.Errorf("%s: %q, %q, %v", name, out, notes, err)
		}
	}
}

// A slot of before whose run is to be created later, because of jitter, is the next.
//
// mutations: nextSlots that begins now; one that has a slot which is due, or was decided; one that
// goes back where no operator has said how far it is, or while no slot gets a run.
func TestNextHasTheSlotThatIsAboutToStart(t *testing.T) {
	noon := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
	s := &v1alpha1.Schedule{}
	s.Name, s.Spec.Cron, s.Spec.JitterSeconds = "s", []string{"@hourly"}, 3000
	table, err := cron.New(s.Spec.Cron, "", cron.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	due := schedule.Due(table, s.Name, noon, 3000*time.Second)
	if !due.After(noon.Add(time.Minute)) {
		t.Fatalf("the slot is due at %v: take another name", due)
	}
	decided := &v1alpha1.ScheduleStatus{DecidedUntil: new(metav1.NewTime(noon))}
	behind := &v1alpha1.ScheduleStatus{DecidedUntil: new(metav1.NewTime(noon.Add(-5 * time.Hour)))}
	held := behind.DeepCopy()
	held.Held = v1alpha1.SlotSuspended
	for name, c := range map[string]struct {
		at     time.Time
		status *v1alpha1.ScheduleStatus
		want   time.Time
	}{
		"before it is due":     {due.Add(-time.Second), behind, noon},
		"when it is due":       {due, behind, noon.Add(time.Hour)},
		"after it was decided": {due.Add(-time.Second), decided, noon.Add(time.Hour)},
		"held for long":        {due.Add(-time.Second), held, noon.Add(time.Hour)},
		"no status":            {due.Add(-time.Second), nil, noon.Add(time.Hour)},
		"not looked at":        {due.Add(-time.Second), &v1alpha1.ScheduleStatus{}, noon.Add(time.Hour)},
	} {
		s.Status = c.status
		slots, err := nextSlots(s, c.at, 2)
		if err != nil || len(slots) != 2 || slots[0].Time != c.want.Format(time.RFC3339) || slots[1].Time != c.want.Add(time.Hour).Format(time.RFC3339) {
			t.Errorf("%s: %+v, %v, want %v first", name, slots, err, c.want)
		}
	}
}

// scheduleFile is a file with a schedule.
func scheduleFile(t *testing.T, spec string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "schedule.yaml")
	if err := os.WriteFile(name, []byte("apiVersion: syncopate.dev/v1alpha1\nkind: Schedule\nmetadata: {name: s}\nspec: "+spec+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
