// SPDX-License-Identifier: Apache-2.0

package deadletters_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func TestADeadLetterKeepsBytesAndHeaders(t *testing.T) {
	t.Parallel()
	b := newConsumer(t, natstest.Start(t))
	got, _ := collect(t, b)
	id := bustest.JobID(1)
	const body = "{\"status\":\"Succeeded\",\"output\":\"\xc3\xa4\"}"
	bustest.PublishRaw(t, b.conn, b.conn.Names.Result(id), body, protocol.HeaderToken, bustest.Ring().Sign(id), "X-Own", "kept",
		// mutation: headers copied as they are make the letter unpublishable here, for ever
		jetstream.MsgIDHeader, "own-id", jetstream.ExpectedStreamHeader, b.conn.Names.ResultsStream())
	d := bustest.Receive(t, "result", got, 1)[0]
	settle(t, d, fmt.Errorf("apply: %w", results.Permanent("bad_output", errors.New("line 1\nline 2"))))

	letters := bustest.DeadLetters(t, b.conn)
	if len(letters) != 1 {
		t.Fatalf("%d dead letters", len(letters))
	}
	l := letters[0]
	if string(l.Data) != body || l.Subject != "syncopate.deadletters.bad_output.run-1.fetch.-.1" {
		t.Errorf("dead letter %s: %s", l.Subject, l.Data)
	}
	headers := map[string]string{}
	for name := range l.Header {
		headers[name] = l.Header.Get(name)
	}
	delete(headers, jetstream.MsgIDHeader)
	delete(headers, jetstream.ExpectedStreamHeader) // of the letter itself
	want := map[string]string{
		"X-Own": "kept", protocol.HeaderToken: bustest.Ring().Sign(id),
		"Syncopate-Original-Nats-Msg-Id": "own-id", "Syncopate-Original-Nats-Expected-Stream": "SYNCOPATE_RESULTS",
		deadletters.HeaderReason: "bad_output", deadletters.HeaderError: "apply: bad_output: line 1 line 2", deadletters.HeaderSubject: b.conn.Names.Result(id),
		deadletters.HeaderStream: "SYNCOPATE_RESULTS", deadletters.HeaderSequence: "1", deadletters.HeaderDeliveries: "1",
	}
	if diff := cmp.Diff(want, headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	bustest.Eventually(t, "the message is terminated", func() bool { return bustest.Unsettled(t, b.conn) == 0 })
}

func TestADeadLetterThatWouldBeTooLargeLeavesOutTheHeaders(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *server.Options) { o.MaxPayload = 8 << 10 })
	b := newConsumer(t, s)
	got, _ := collect(t, b)
	id := bustest.JobID(1)
	body := `{"status":"Succeeded","output":"` + string(bytes.Repeat([]byte("x"), 7<<10)) + `"}`
	bustest.PublishRaw(t, b.conn, b.conn.Names.Result(id), body, protocol.HeaderToken, bustest.Ring().Sign(id), "X-Own", string(bytes.Repeat([]byte("y"), 700)))
	settle(t, bustest.Receive(t, "result", got, 1)[0], results.Permanent("r", nil))
	letters := bustest.DeadLetters(t, b.conn)
	if len(letters) != 1 || string(letters[0].Data) != body || letters[0].Header.Get(deadletters.HeaderTruncated) != "headers" {
		t.Errorf("dead letters: %+v", letters)
	}
}
