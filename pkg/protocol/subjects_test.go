// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// These names are the protocol: workers and stored messages depend on every byte.
func TestNamesAreAsPublished(t *testing.T) {
	n := Names{Prefix: DefaultPrefix}
	id := JobID{RunUID: "run-1", Step: "fetch", Item: "3", Attempt: 2}
	got := []string{
		n.JobsStream(), n.ResultsStream(), n.DeadLettersStream(), n.ControlStream(), Names{Prefix: "my-team"}.JobsStream(),
		n.Job("web.fetch", id), n.TopicJobs("web.fetch"), n.Result(id),
		n.PartitionResults(7), n.Control("run-1"), n.DeadLetter("rejected", "run-1"), n.DeadLetter("rejected", "a.b"), n.DeadLetterOf("late", id), Durable("web.fetch"),
		id.String(), ResultMsgID(id, "k.t"), StartedMsgID(id, "k.t"),
	}
	want := []string{
		"SYNCOPATE_JOBS", "SYNCOPATE_RESULTS", "SYNCOPATE_DEADLETTERS", "SYNCOPATE_CONTROL", "MY_TEAM_JOBS",
		"syncopate.jobs.web.fetch.run-1.fetch.3.2", "syncopate.jobs.web.fetch.*.*.*.*",
		"syncopate.results.60.run-1.fetch.3.2",
		"syncopate.results.07.>", "syncopate.control.run-1", "syncopate.deadletters.rejected.run-1", "syncopate.deadletters.rejected.-",
		"syncopate.deadletters.late.run-1.fetch.3.2",
		"web_fetch", "run-1/fetch/3/2", "run-1/fetch/3/2/k.t", "run-1/fetch/3/2/k.t/started",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// mutation: another hash or another modulus makes this fail: results under way would land in
// partitions where nobody looks.
func TestPartitionsStayTheSame(t *testing.T) {
	for uid, want := range map[string]int{"run-1": 60, "0f8fad5b-d9cb-469f-a165-70867728950e": 1, "": 5} {
		if got := Partition(uid); got != want {
			t.Errorf("Partition(%q) = %d, want %d", uid, got, want)
		}
	}
}

func TestAResultSubjectIsReadAsItWasWritten(t *testing.T) {
	n := Names{Prefix: DefaultPrefix}
	id := JobID{RunUID: "run-1", Step: "fetch", Item: NoItem, Attempt: 1}
	if got, err := n.ParseResult(n.Result(id)); err != nil || got != id {
		t.Errorf("ParseResult = %+v, %v", got, err)
	}
	for name, s := range map[string]string{
		"another prefix":       "other.results.60.run-1.fetch.-.1",
		"a job":                "syncopate.jobs.43.run-1.fetch.-.1",
		"no tokens":            "syncopate.results.",
		"a partition only":     "syncopate.results.60",
		"the wrong partition":  "syncopate.results.61.run-1.fetch.-.1", // mutation: no comparison of the whole subject
		"a one-digit spelling": "syncopate.results.060.run-1.fetch.-.1",
		"one token too many":   "syncopate.results.60.run-1.fetch.-.1.2",
		"attempt 0":            "syncopate.results.60.run-1.fetch.-.0",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := n.ParseResult(s); !errors.Is(err, ErrJobID) {
				t.Errorf("ParseResult(%q) = %+v, %v; want ErrJobID", s, got, err)
			}
		})
	}
}

// The server takes a subject of 4 KiB. mutation: a subject, or a part of one, without a bound.
func TestLittleIsSaidOfALongSubject(t *testing.T) {
	n := Names{Prefix: "p"}
	for _, subject := range []string{
		strings.Repeat("\x7f", 4<<10), "p.results.00." + strings.Repeat("\x7f", 4<<10), "p.results.00.u." + strings.Repeat("\x7f", 4<<10) + ".-.1",
	} {
		if _, err := n.ParseResult(subject); !errors.Is(err, ErrJobID) || len(err.Error()) > 2<<10 {
			t.Errorf("an error of %d bytes: %.300s", len(err.Error()), err)
		}
	}
}

func TestAControlSubjectIsReadAsItWasWritten(t *testing.T) {
	n := Names{Prefix: DefaultPrefix}
	for subject, want := range map[string]string{n.Control("run-1"): "run-1", "syncopate.control.a.b": "", "other.control.a": "", "syncopate.control.": ""} {
		if uid, ok := n.ParseControl(subject); ok != (want != "") || ok && uid != want {
			t.Errorf("ParseControl(%q) = %q, %t", subject, uid, ok)
		}
	}
}

func FuzzParseResult(f *testing.F) {
	n := Names{Prefix: DefaultPrefix}
	f.Add("syncopate.results.60.run-1.fetch.-.1")
	f.Add("syncopate.results.")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := n.ParseResult(s)
		if err != nil {
			if !errors.Is(err, ErrJobID) {
				t.Errorf("error %v does not wrap ErrJobID", err)
			}
			return
		}
		if n.Result(id) != s {
			t.Errorf("%q was read as %s", s, id)
		}
	})
}

func TestParseJobReadsWhatJobWrote(t *testing.T) {
	n := Names{Prefix: DefaultPrefix}
	id := JobID{RunUID: "run-1", Step: "fetch", Item: NoItem, Attempt: 2}
	for _, topic := range []string{"web", "web.fetch", "a.b.c"} {
		gotTopic, gotID, err := n.ParseJob(n.Job(topic, id))
		if err != nil || gotTopic != topic || gotID != id {
			t.Errorf("topic %q: got %q, %v, %v", topic, gotTopic, gotID, err)
		}
	}
	for _, subject := range []string{"", "syncopate.jobs.run-1.fetch.-.1", "syncopate.results.00.run-1.fetch.-.1", "other.jobs.web.run-1.fetch.-.1", "syncopate.jobs.web.run-1.fetch.-.0"} {
		if _, _, err := n.ParseJob(subject); err == nil {
			t.Errorf("%q was taken for a job", subject)
		}
	}
}
