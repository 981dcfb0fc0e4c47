// SPDX-License-Identifier: Apache-2.0

package views

import (
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const (
	maxText  = 400
	maxShort = 120
)

// Page is what all pages have.
type Page struct {
	Title  string
	Active string // the entry of the menu
	Base   string // what addresses begin with, without a slash at the end
	User   string // who looks; "": the user of the kubeconfig
	CSRF   string // what each form sends back
	Nonce  string // what the forms send back that make something new: another one each time that the page is made
	Live   string // the address that tells of changes; "": the page does not change
	Notice string // what has been done
	Now    time.Time
	Body   any
}

// Sections are the entries of the menu.
func (Page) Sections() []Section {
	return []Section{
		{"runs", "Runs"},
		{"policies", "Locks and policies"},
		{"tenants", "Tenants and semaphores"},
		{"schedules", "Schedules"},
		{"replicas", "Replicas"},
		{"dead-letters", "Dead letters"},
	}
}

// Section is an entry of the menu.
type Section struct{ Path, Title string }

// Notice says what was done, by the word in an address. Other words say nothing.
func Notice(done string) string { return notices[done] }

var notices = map[string]string{
	"approve":   "Approved. The step goes on as soon as the operator has seen it.",
	"reject":    "Rejected. The step fails as soon as the operator has seen it.",
	"cancel":    "The run is asked to end as Cancelled; its finally steps run first.",
	"terminate": "The run is asked to end as Cancelled at once.",
	"suspend":   "Suspended: jobs that are under way finish, and no new ones begin.",
	"resume":    "Resumed.",
	"redrive":   "Published again. The operator applies it if it still counts.",
	"rerun":     "This is the new run.",
}

// Failure is a page that says what went wrong.
type Failure struct {
	What   string
	Cause  string
	Advice string
	Back   string // an address to go on with; "": none
}

// Scope is whose objects a page shows, of those that are in namespaces.
type Scope struct {
	Namespace string // the one that was asked for; "": all
	OnlyOne   string // the user's own, where all were asked for, and may not be seen
	Refused   string // why none are shown; "": they are
}

// ScopeOf is what an address asks for.
func ScopeOf(q url.Values) Scope { return Scope{Namespace: ParseRunsQuery(q).Namespace} }

// Mark is the sign of a phase, so that it can be told without its colour.
func Mark(phase string) string {
	if m := marks[phase]; m != "" {
		return m
	}
	return "·"
}

var marks = map[string]string{
	"Pending": "·", "Dispatched": "◌", "Running": "●", "BackingOff": "↻", "WaitingForApproval": "◇", "Delayed": "◔", "Succeeded": "✔",
	"Failed": "✖", "Skipped": "○", "Cancelled": "⊘", "TimedOut": "◷", "Queued": "…", "Suspended": "‖",
}

// Tone is the class of a phase in style sheets. Unknown phases have one, too.
func Tone(phase string) string {
	switch phase {
	case "Succeeded":
		return "good"
	case "Failed", "TimedOut":
		return "bad"
	case "Running", "Dispatched":
		return "busy"
	case "BackingOff", "WaitingForApproval", "Suspended":
		return "warn"
	case "Queued", "Delayed":
		return "wait"
	default:
		return "idle"
	}
}

// text makes a text fit to be shown.
func text(s string) string { return strings.TrimSpace(runview.Printable(s, maxText)) }

func shortText(s string) string { return strings.TrimSpace(runview.Printable(s, maxShort)) }

func shortTexts(list []string) (short []string) {
	for _, s := range list {
		short = append(short, shortText(s))
	}
	return short
}

// ago is the distance of a moment, as "5m".
func ago(t, now time.Time) string { return duration.HumanDuration(max(0, now.Sub(t))) }

// Moment is a time with its distance from now.
type Moment struct {
	At   string // for machines
	Text string // for people: "5m ago", "in 10s"
}

func moment(t *time.Time, now time.Time) Moment {
	if t == nil || t.IsZero() {
		return Moment{}
	}
	m := Moment{At: t.UTC().Format(time.RFC3339), Text: ago(*t, now) + " ago"}
	if t.After(now) {
		m.Text = "in " + duration.HumanDuration(t.Sub(now))
	}
	return m
}
