// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Letter is a dead letter as JSON output has it.
type Letter struct {
	Sequence   uint64    `json:"sequence"`
	StoredAt   time.Time `json:"storedAt"`
	Reason     string    `json:"reason"`
	Cause      string    `json:"cause"`
	RunUID     string    `json:"runUID,omitempty"`    // absent: no run is known
	Unproved   bool      `json:"unproved,omitempty"`  // only the message says that it is of this run
	Namespace  string    `json:"namespace,omitempty"` // absent: the run does not exist any more, or may not be seen
	Name       string    `json:"name,omitempty"`
	Step       string    `json:"step,omitempty"`
	Attempt    int32     `json:"attempt,omitempty"`
	Subject    string    `json:"subject"` // where the message was published
	Deliveries uint64    `json:"deliveries"`
	Bytes      int       `json:"bytes"`             // of the body
	Refused    string    `json:"refused,omitempty"` // why a redrive would be refused
}

// ShownLetter is a dead letter with headers and body. One of the body's forms is there, unless
// it is empty.
type ShownLetter struct {
	Letter
	Kept       int                 `json:"kept,omitempty"` // bytes of the body that are kept, the first; absent: all
	Headers    map[string][]string `json:"headers"`
	Body       json.RawMessage     `json:"body,omitempty"`
	BodyText   string              `json:"bodyText,omitempty"`   // not JSON
	BodyBase64 string              `json:"bodyBase64,omitempty"` // not even text
}

const hidden = "(hidden)"

// notProved follows the name of a run that only the sender of a message gave.
const notProved = " (not proved)"

func (a *app) describe(d *deadletters.Store, l deadletters.Letter, names map[string]types.NamespacedName) Letter {
	run := names[l.RunUID]
	out := Letter{
		Sequence: l.Sequence, StoredAt: l.StoredAt, Reason: l.Reason, Cause: causeOf(l), RunUID: l.RunUID, Unproved: l.Unproved,
		Namespace: run.Namespace, Name: run.Name, Subject: l.Subject, Deliveries: l.Deliveries, Bytes: l.Size,
	}
	if id, err := a.names().ParseResult(l.Subject); err == nil {
		out.Step, out.Attempt = id.Step, id.Attempt
	}
	if err := d.Redrivable(l, false); err != nil {
		out.Refused = l.Hopeless()
		if out.Refused == "" {
			out.Refused = deadletters.ErrNotOurs.Error()
		}
	}
	return out
}

// causeOf is why a letter was put aside, without its reason.
func causeOf(l deadletters.Letter) string { return strings.TrimPrefix(l.Cause, l.Reason+": ") }

// run is how a table names the run of a letter.
func (l Letter) run() string {
	if l.Unproved && l.RunUID != "" {
		l.Unproved = false
		return l.run() + notProved
	}
	switch {
	case l.Name != "":
		return l.Namespace + "/" + l.Name
	case l.RunUID != "":
		return l.RunUID
	default:
		return "-"
	}
}

// namesOf finds the runs of letters. Without an API server the letters are shown all the same.
func (a *app) namesOf(ctx context.Context, letters []deadletters.Letter) map[string]types.NamespacedName {
	wanted := map[string]bool{}
	for _, l := range letters {
		if l.RunUID != "" {
			wanted[l.RunUID] = true
		}
	}
	names, err := a.runNames(ctx, wanted)
	if err != nil {
		a.note("warning: runs are shown by UID: %s", OneLine(err))
	}
	return names
}

// shown hides the token: also where other headers contain it, as the Msg-Id does.
func shown(l Letter, from deadletters.Letter) ShownLetter {
	s := ShownLetter{Letter: l, Headers: withoutTokens(from.OriginalHeader())}
	if from.Kept < from.Size {
		s.Kept = from.Kept
	}
	switch {
	case len(from.Body) == 0:
	case json.Valid(from.Body) && utf8.Valid(from.Body):
		s.Body = from.Body
	case utf8.Valid(from.Body):
		s.BodyText = string(from.Body)
	default:
		s.BodyBase64 = base64.StdEncoding.EncodeToString(from.Body)
	}
	return s
}

func withoutTokens(headers map[string][]string) map[string][]string {
	var pairs []string
	for name, values := range headers {
		for _, v := range values {
			if strings.EqualFold(name, protocol.HeaderToken) && v != "" {
				pairs = append(pairs, v, hidden)
			}
		}
	}
	replacer := strings.NewReplacer(pairs...)
	out := map[string][]string{}
	for name, values := range headers {
		for _, v := range values {
			out[name] = append(out[name], replacer.Replace(v))
		}
	}
	return out
}
