// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"cmp"
	"maps"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/internal/devenv"
)

// flaw is what a wrong worker does, in words.
type flaw string

const (
	none                  flaw = ""
	otherPartition        flaw = "answers in another partition"
	noToken               flaw = "leaves out the token"
	resultIDWithoutToken  flaw = "takes the job id as Msg-Id of the result"
	startedIDWithoutToken flaw = "leaves out the token in the Msg-Id of Started"
	answersTwice          flaw = "publishes its answer twice"
	acksFirst             flaw = "acks before it works"
	ignoresPubAck         flaw = "takes an error for a PubAck"
	newIDForRedelivery    flaw = "takes another Msg-Id when it does a job again"
	numbersAsText         flaw = "turns numbers into text"
	roundsNumbers         flaw = "has doubles for whole numbers"
	onlyASCII             flaw = "knows ASCII only"
	losesCode             flaw = "loses the code of a failure"
	losesFinal            flaw = "loses final"
	neverCutsMessages     flaw = "publishes messages of any length"
	failsForRetry         flaw = "fails where it should ask for a retry"
	takesAnyFence         flaw = "takes a job whose fence cannot be read"
	oneFence              flaw = "hands on one fence of several locks"
	losesTrace            flaw = "does not read where a job is in a trace"
	cutsOutputs           flaw = "cuts outputs at 32 KiB"
	repeatsTooLarge       flaw = "publishes what is too large again and again"
	otherDigest           flaw = "takes the digest of an output before it is stored in another form"
	mixesChunks           flaw = "stores the pieces of an output in the wrong order"
	inlinesTooMuch        flaw = "puts outputs of up to 90 KiB into its answer"
	answersBeforeStored   flaw = "does not wait until an output is stored"
	storesTooMuch         flaw = "stores outputs of any size"
	obeysAnything         flaw = "takes every control message for Cancel"
	trustsHeaders         flaw = "believes every header"
	returnsNonsense       flaw = "gives back what is no JSON"
	worksExpired          flaw = "works on jobs whose deadline has passed"
	answersLate           flaw = "answers after the deadline"
	ignoresControl        flaw = "does not listen to control messages"
	cancelsSiblings       flaw = "cancels all jobs of a run for one"
	neverStarts           flaw = "never says Started"
	neverPings            flaw = "never says InProgress"
	takesTooMany          flaw = "takes more jobs than it has places"
	oneAtATime            flaw = "does one job at a time"
	dropsRedelivered      flaw = "takes a redelivered job for a duplicate"
	exitsAtOnce           flaw = "exits at SIGTERM in the middle of its jobs"
	answersHalf           flaw = "answers what it has when it is stopped"
	endsWithItsConsumer   flaw = "ends when the consumer vanishes"
	forgetsWhatWasCutOff  flaw = "acks without a result when the connection was lost meanwhile"
	endsWithItsServer     flaw = "ends when the server does"
	logsToken             flaw = "logs the token"
)

// hasNoStore is no flaw, unless Config.References.
const hasNoStore flaw = "fails finally where an output is large"

// foundBy says which check finds a flaw.
var foundBy = map[flaw]string{
	otherPartition: "reply", noToken: "token", resultIDWithoutToken: "result-id", startedIDWithoutToken: "started-id",
	answersTwice: "once", acksFirst: "order", ignoresPubAck: "refused", newIDForRedelivery: "twice",
	numbersAsText: "output", roundsNumbers: "output", onlyASCII: "unicode", losesCode: "failed", losesFinal: "final", neverCutsMessages: "long-message", failsForRetry: "retry",
	oneFence: "lock-fences", losesTrace: "trace", cutsOutputs: "large-output", repeatsTooLarge: "too-large",
	otherDigest: "claim-check", mixesChunks: "claim-check", inlinesTooMuch: "claim-check",
	answersBeforeStored: "stored-first", storesTooMuch: "over-limit",
	obeysAnything: "unknown", trustsHeaders: "forged", takesAnyFence: "forged", returnsNonsense: "not-json",
	worksExpired: "deadline-passed", answersLate: "deadline-passes", ignoresControl: "cancel", cancelsSiblings: "cancel-others",
	neverStarts: "started", neverPings: "in-progress", takesTooMany: "pull-bound", oneAtATime: "overlap",
	dropsRedelivered: "killed", exitsAtOnce: "shutdown", answersHalf: "half-done", endsWithItsConsumer: "consumer-gone",
	forgetsWhatWasCutOff: "restart-working", endsWithItsServer: "restart-idle", logsToken: "secret",
}

const (
	rawAckWait  = 800 * time.Millisecond
	rawPatience = 5 * time.Second
)

// mutation: a check that always passes, or that also looks at what another one judges, makes its
// line fail. The kit is proven by the wrong workers, and they by the right one: every flaw is one
// line of raw.
func TestEveryFlawIsFoundByItsCheckAndNoOther(t *testing.T) {
	t.Parallel()
	flaws := append(slices.Sorted(maps.Keys(foundBy)), none)
	for _, id := range IDs() {
		if !slices.Contains(slices.Collect(maps.Values(foundBy)), id) {
			t.Errorf("nothing shows that the check %q can fail", id)
		}
	}
	for _, f := range flaws {
		t.Run("a worker that "+cmp.Or(string(f), "is right"), func(t *testing.T) {
			t.Parallel()
			server := start(t)
			outcomes, err := Run(t.Context(), Config{
				URL: server.URL(), AckWait: rawAckWait, Patience: rawPatience,
				Start: startRaw(server.URL(), f), StartHasty: startRaw(server.URL(), f), RestartNATS: server.Restart,
			})
			if err != nil {
				t.Fatal(err)
			}
			var want, got []string
			for _, o := range outcomes {
				if f != none && foundBy[f] == o.ID {
					want = append(want, o.ID)
				}
				if o.Verdict != OK {
					got = append(got, o.ID)
				}
				t.Logf("%s (%s)", o, o.Took.Round(time.Millisecond))
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("checks that fail (-want +got):\n%s", diff)
			}
		})
	}
}

// start runs a NATS server until the test ends.
func start(t *testing.T) *devenv.NATS {
	t.Helper()
	server, err := devenv.StartNATS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return server
}
