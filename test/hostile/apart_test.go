// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/devenv"
)

// sh plays a process that does harm.
func sh(t *testing.T, script string, change func(context.Context) error) (*Apart, error) {
	t.Helper()
	s := &Scene{Env: &devenv.Env{}, change: change}
	return s.AttackApart(t.Context(), exec.CommandContext(t.Context(), "sh", "-c", script), Dose{Size: Few}, Kinds()[0])
}

// mutation: listen that does not answer, orders without kinds, or a finding that is dropped, makes
// this fail.
func TestAProcessThatDoesHarmIsHeard(t *testing.T) {
	t.Parallel()
	asked := 0
	a, err := sh(t, `
case "$`+OrdersEnv+`" in *late-results*) ;; *) exit 3;; esac
echo '{"Word":"under way"}'
echo '{"Word":"change"}'
read one; read other
case "$one$other" in *changed*"no place"*|*enough*changed*"no place"*) ;; *) exit 4;; esac
echo '{"Word":"over","Finding":{"Rounds":3,"Lost":["a"]},"Error":"late"}'`, func(context.Context) error {
		asked++
		return errors.New("no place")
	})
	if err != nil {
		t.Fatal(err)
	}
	found, err := a.Stop(t.Context())
	if !errors.Is(err, errHarm) || !strings.Contains(err.Error(), "late") {
		t.Errorf("%v; want what the process says", err)
	}
	if found.Rounds != 3 || len(found.Lost) != 1 || asked != 1 {
		t.Errorf("%+v, owner changed %d times", found, asked)
	}
}

// mutation: a process that is gone without a word and counts as over makes this fail.
func TestAProcessThatEndsTooEarlyIsAnError(t *testing.T) {
	t.Parallel()
	if a, err := sh(t, "exit 0", nil); a == nil || !errors.Is(err, errHarmGone) {
		t.Errorf("%v, %v; want it to be gone before it was under way", a, err)
	}
	a, err := sh(t, `echo '{"Word":"under way"}'; read enough`, nil) // gone before it is heard is the case above
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Stop(t.Context()); !errors.Is(err, errHarmGone) {
		t.Errorf("%v; want it to be gone", err)
	}
}

// mutation: Stop that does not kill makes this hang.
func TestAProcessThatDoesNotEndIsKilled(t *testing.T) {
	t.Parallel()
	a, err := sh(t, `echo '{"Word":"under way"}'; exec tail -f /dev/null`, nil)
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Stop(over); !errors.Is(err, errHarmGone) {
		t.Errorf("%v; want it to be gone", err)
	}
}

// mutation: a change that does not wait for its answer, or that waits for one when nobody answers
// any more, makes this fail or hang.
func TestAChangeOfOwnerIsAskedForAndAnswered(t *testing.T) {
	t.Parallel()
	in, answers := io.Pipe()
	var said bytes.Buffer
	d := &dialogue{words: json.NewEncoder(&said), changed: make(chan error), enough: make(chan struct{}), gone: make(chan struct{})}
	go d.listen(in)
	answered := make(chan error, 1)
	go func() { answered <- json.NewEncoder(answers).Encode(line{Word: changed, Error: "no place"}) }()
	if err := d.change(t.Context()); !errors.Is(err, errHarm) || !strings.Contains(err.Error(), "no place") {
		t.Errorf("%v; want the answer", err)
	}
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	var l line
	if err := json.NewDecoder(&said).Decode(&l); err != nil || l.Word != change {
		t.Errorf("said %+v, %v", l, err)
	}
	if err := answers.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.change(t.Context()); !errors.Is(err, errGone) {
		t.Errorf("%v; want that nobody answers", err)
	}
}

// mutation: an unknown name that is left out, or Calm that is, makes this fail.
func TestOrdersNameKinds(t *testing.T) {
	t.Parallel()
	if _, err := (orders{Kinds: []string{"kindness"}}).kinds(); !errors.Is(err, errNoKind) {
		t.Errorf("%v; want that there is no such kind", err)
	}
	kinds, err := orders{Kinds: []string{"refused-results"}, Dose: Dose{Calm: true}}.kinds()
	if err != nil || len(kinds) != 1 || kinds[0].Name != "changes" {
		t.Errorf("%+v, %v; want what it is compared with", kinds, err)
	}
}

// mutation: the longest time instead of the least, or none for kinds of which only
// some change owners.
func TestOwnersChangeNoMoreOftenThanInTheReference(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]time.Duration{"late-publishes": changesEvery["late-publishes"], "backlog": 0} {
		kinds, err := orders{Kinds: []string{name}}.kinds()
		if got := leastApart(kinds); err != nil || got != want {
			t.Errorf("%s: %s apart, want %s; %v", name, got, want, err)
		}
	}
	if got := leastApart(Kinds()); got != changesEvery["refused-results"] {
		t.Errorf("all kinds: %s apart", got)
	}
}

// mutation: With that leaves the times of one out, or counts only one's failures, makes this fail.
func TestLatenciesOfTwoMeasurementsAreThoseOfAllRuns(t *testing.T) {
	t.Parallel()
	one := Latencies{times: []time.Duration{4, 2}, Failed: []string{"a"}, spans: spans{create: []time.Duration{1}}}
	two := Latencies{times: []time.Duration{9, 1, 3}, Unfinished: []string{"b"}, spans: spans{create: []time.Duration{7}}}
	got := one.With(two)
	if got.Runs != 5 || got.P50 != 3 || got.Most != 9 || got.P99 != 9 || got.Stages.Create != 7 || len(got.Failed) != 1 || len(got.Unfinished) != 1 {
		t.Errorf("%+v", got)
	}
}
