// SPDX-License-Identifier: Apache-2.0

package deadletters

import (
	"errors"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mutation: Redrivable returning nil makes this fail.
func TestWhatCanNeverBeAppliedIsRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason, subject string
		truncated       bool
		force           bool
		want            error
	}{
		"a message that may be applied":                     {reason: "DeliveriesExhausted"},
		"a reason that this version does not know":          {reason: "news"},
		"a forged token":                                    {reason: "rejected", want: ErrHopeless},
		"a forged token, by force":                          {reason: "rejected", force: true},
		"a subject without a job":                           {reason: "undecodable", want: ErrHopeless},
		"the same reason as the API spells it":              {reason: "Undecodable", want: ErrHopeless},
		"an unusable body":                                  {reason: "ResultRejected", want: ErrHopeless},
		"headers that are gone":                             {reason: "news", truncated: true, want: ErrHopeless},
		"a letter that would publish jobs":                  {reason: "news", subject: "syncopate.jobs.a.run-1.fetch.-.1", want: ErrNotOurs},
		"a letter that would publish jobs, by force":        {reason: "news", subject: "syncopate.jobs.a.run-1.fetch.-.1", force: true, want: ErrNotOurs},
		"a letter that would call the API, by force":        {reason: "news", subject: "$JS.API.STREAM.DELETE.X", force: true, want: ErrNotOurs},
		"a letter without an original subject, by force":    {reason: "news", subject: "-", force: true, want: ErrNotOurs},
		"a letter with a line break in the name, by force":  {reason: "news", subject: "syncopate.results.01.a\r\nPUB x", force: true, want: ErrNotOurs},
		"a letter of another installation's name, by force": {reason: "news", subject: "other.results.01.run-1.fetch.-.1", force: true, want: ErrNotOurs},
	}
	d := &Store{names: protocol.Names{Prefix: protocol.DefaultPrefix}}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := Letter{Sequence: 7, Reason: tt.reason, Truncated: tt.truncated, Subject: tt.subject}
			if l.Subject == "" {
				l.Subject = d.names.Result(bustest.JobID(1))
			}
			if err := d.Redrivable(l, tt.force); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}
