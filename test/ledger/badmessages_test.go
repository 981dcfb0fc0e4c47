// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/book"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// badCase is one way to be wrong: the message is made from a job that somebody was given.
type badCase struct {
	make func(deskJob) *nats.Msg
	fate fate
}

// errTooLarge is what the stream says of a message above its limit.
var errTooLarge = jetstream.ErrStreamMessageExceedsMaximum

// badMessages are the table: what is wrong, and what becomes of it.
func badMessages(t *testing.T, keys keys.Keyring) map[string]badCase {
	t.Helper()
	all := map[string]badCase{}
	for _, some := range []map[string]badCase{badBodies(), badTokens(keys), badSubjects(), badClaims(keys), badSizes()} {
		maps.Copy(all, some)
	}
	return all
}

// badBodies have a good token: whoever sent them had the job, so the attempt has failed.
func badBodies() map[string]badCase {
	cases := map[string]badCase{}
	for name, body := range map[string]string{
		"a body that is empty":                         ``,
		"a body that is cut off":                       `{"status":"Succ`,
		"a body that is no object":                     `["Succeeded"]`,
		"a body with text after it":                    `{"status":"Succeeded"} and more`,
		"a body that is not UTF-8":                     "{\"status\":\"Succeeded\",\"output\":\"\xff\"}",
		"a body nested too deeply":                     `{"status":"Succeeded","output":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`,
		"a status that nobody knows":                   `{"status":"Done"}`,
		"a status that is reserved":                    `{"status":"Progress"}`,
		"a status in small letters":                    `{"status":"succeeded"}`,
		"a status that is a number":                    `{"status":1}`,
		"no status":                                    `{"output":1}`,
		"a failure without an error":                   `{"status":"Failed"}`,
		"a failure whose error is a string":            `{"status":"Failed","error":"broken"}`,
		"a retry in the past":                          `{"status":"Retry","retryAfterMillis":-1}`,
		"a retry at a word":                            `{"status":"Retry","retryAfterMillis":"soon"}`,
		"a retry beyond all numbers":                   `{"status":"Retry","retryAfterMillis":1e30}`,
		"a reference to an output that is none of its": `{"status":"Succeeded","outputRef":{"name":"x","digest":"y","size":1}}`,
	} {
		cases[name] = badCase{fate: fate{reason: deadletters.ReasonResultRejected, costs: true}, make: func(j deskJob) *nats.Msg { return j.message([]byte(body)) }}
	}
	return cases
}

// badTokens have a good body. Anybody may have sent them, so nothing happens to the attempt.
func badTokens(keys keys.Keyring) map[string]badCase {
	otherStep := func(j deskJob) protocol.JobID { id := j.id; id.Step = book.StepName(1); return id }
	cases := map[string]badCase{}
	for name, token := range map[string]func(deskJob) string{
		"a token that is missing":              func(deskJob) string { return "" },
		"a token that is a word":               func(deskJob) string { return "please" },
		"a token with one letter changed":      func(j deskJob) string { return j.token[:len(j.token)-2] + "~" + j.token[len(j.token)-1:] },
		"a token that is cut off":              func(j deskJob) string { return j.token[:len(j.token)-1] },
		"a token of a key that does not exist": func(j deskJob) string { return "0" + j.token },
		"a token of another step":              func(j deskJob) string { return keys.Sign(otherStep(j)) },
		"a token of another run":               func(j deskJob) string { id := j.id; id.RunUID = uuid.NewString(); return keys.Sign(id) },
		"a token of another attempt":           func(j deskJob) string { id := j.id; id.Attempt = 2; return keys.Sign(id) },
	} {
		cases[name] = badCase{fate: fate{reason: "rejected"}, make: func(j deskJob) *nats.Msg {
			m := j.message(book.Success())
			m.Header.Set(protocol.HeaderMsgID, uuid.NewString()) // what a forger cannot know is the good one
			m.Header.Set(protocol.HeaderToken, token(j))
			return m
		}}
	}
	cases["a forger that takes the job id for its Msg-Id"] = badCase{fate: fate{reason: "rejected"}, make: func(j deskJob) *nats.Msg {
		m := j.message(book.Success())
		m.Header.Set(protocol.HeaderMsgID, j.id.String())
		m.Header.Del(protocol.HeaderToken)
		return m
	}}
	return cases
}

// badSubjects have the token and body of the job, and another address.
func badSubjects() map[string]badCase {
	cases := map[string]badCase{}
	at := func(name string, is fate, subject func(tokens []string) []string) {
		cases["a subject with "+name] = badCase{fate: is, make: func(j deskJob) *nats.Msg {
			m := j.message(book.Success())
			m.Header.Set(protocol.HeaderMsgID, uuid.NewString())
			m.Subject = strings.Join(subject(strings.Split(m.Subject, ".")), ".")
			return m
		}}
	}
	const partition, uid, step, item, attempt = 2, 3, 4, 5, 6
	put := func(i int, token string) func([]string) []string {
		return func(t []string) []string { t[i] = token; return t }
	}
	undecodable, nowhere := fate{reason: "undecodable"}, fate{refused: jetstream.ErrNoStreamResponse}
	at("another partition", undecodable, func(t []string) []string {
		t[partition] = map[bool]string{true: "08", false: "07"}[t[partition] == "07"]
		return t
	})
	at("a partition that does not exist", nowhere, put(partition, "64"))
	at("a partition of one digit", nowhere, put(partition, "7"))
	at("a partition that is a word", nowhere, put(partition, "results"))
	at("a token too many", undecodable, func(t []string) []string { return append(t, "1") })
	at("a token too few", undecodable, func(t []string) []string { return t[:attempt] })
	at("nothing but the partition", nowhere, func(t []string) []string { return t[:uid] })
	at("capitals in the step", undecodable, put(step, "Step-000"))
	at("a step of 41 letters", undecodable, put(step, strings.Repeat("s", 41)))
	at("a wildcard for the step", undecodable, put(step, "*"))
	at("a wildcard for the rest", undecodable, put(attempt, ">"))
	at("an item that is a word", undecodable, put(item, "all"))
	at("an item with a leading zero", undecodable, put(item, "01"))
	at("a run UID of other letters", undecodable, put(uid, "ümläut"))
	at("a run UID of 65 letters", undecodable, put(uid, strings.Repeat("u", 65)))
	at("attempt 0", undecodable, put(attempt, "0"))
	at("attempt -1", undecodable, put(attempt, "-1"))
	at("attempt 01", undecodable, put(attempt, "01"))
	at("an attempt that is a word", undecodable, put(attempt, "one"))
	at("an attempt above 2^31", undecodable, put(attempt, "2147483648"))
	at("an attempt above 2^64", undecodable, put(attempt, "99999999999999999999"))
	return cases
}

// badClaims have the right token for what they say, which is not so. Whoever holds the key could
// send them, and so could a worker of a run that was restored from an old backup. They may turn out
// to be true, so they are tried until the budget of the run's policy is used up.
func badClaims(keys keys.Keyring) map[string]badCase {
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	cases := map[string]badCase{}
	for name, change := range map[string]func(*protocol.JobID){
		"an attempt that comes next":         func(id *protocol.JobID) { id.Attempt = 2 },
		"an attempt far ahead":               func(id *protocol.JobID) { id.Attempt = 2_147_483_647 },
		"a step that the run does not have":  func(id *protocol.JobID) { id.Step = "elsewhere" },
		"an item of a step that has no list": func(id *protocol.JobID) { id.Item = "0" },
	} {
		cases["a good token for "+name] = badCase{fate: fate{reason: deadletters.ReasonDeliveriesExhausted}, make: func(j deskJob) *nats.Msg {
			change(&j.id)
			return forged(keys, names, j.id)
		}}
	}
	cases["a good token for a run that never was"] = badCase{make: func(j deskJob) *nats.Msg {
		j.id.RunUID = uuid.NewString()
		return forged(keys, names, j.id)
	}}
	return cases
}

// badSizes are refused to their sender, who can say something else.
func badSizes() map[string]badCase {
	large := func(n int) func(deskJob) *nats.Msg {
		return func(j deskJob) *nats.Msg {
			return j.message([]byte(`{"status":"Succeeded","output":"` + strings.Repeat("x", n) + `"}`))
		}
	}
	return map[string]badCase{
		"a body of 200 KB": {make: large(200_000), fate: fate{refused: errTooLarge}},
		"a body of 10 MB":  {make: large(10_000_000), fate: fate{refused: nats.ErrMaxPayload}},
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
