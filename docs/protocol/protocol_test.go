// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

var update = flag.Bool("update", false, "rewrite the golden messages")

const token = "k1.5c0e4b6f9a"

// message is how a golden file shows what is on the wire; a body is the JSON itself.
type message struct {
	Subject string          `json:"subject"`
	Headers headers         `json:"headers,omitempty"`
	Body    json.RawMessage `json:"body"`
}

// headers are text, or a list where a header is there more than once.
type headers map[string]any

// values are those of a header, in a file that was read.
func (h headers) values(name string) (all []string) {
	list, several := h[name].([]any)
	if !several && h[name] != nil {
		list = []any{h[name]}
	}
	for _, v := range list {
		text, _ := v.(string)
		all = append(all, text)
	}
	return all
}

func names() protocol.Names { return protocol.Names{Prefix: protocol.DefaultPrefix} }

func id() protocol.JobID {
	return protocol.JobID{RunUID: "6a1f9f4e-8f0f-4a63-9f0e-2b7c9f1d3a55", Step: "fetch", Item: protocol.NoItem, Attempt: 2}
}

// storedOutput is a large output, for an example: it would not need to be stored.
const storedOutput = `{"pages":["one","two"]}`

func reference() protocol.OutputRef { return protocol.NewOutputRef(id(), []byte(storedOutput)) }

func nuid() string { return protocol.PayloadNUID(id().RunUID, "Vj3nXbB1") }

func encode(t *testing.T, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func result(t *testing.T, msgID string, r protocol.Result) message {
	t.Helper()
	return message{Subject: names().Result(id()), Headers: headers{protocol.HeaderMsgID: msgID, protocol.HeaderToken: token}, Body: encode(t, r)}
}

func jobMessage() message {
	return message{
		Subject: names().Job("http.fetch", id()),
		Headers: headers{
			protocol.HeaderMsgID: id().String(), protocol.HeaderFence: "17", protocol.HeaderDeadline: "2026-11-20T10:15:00Z",
			protocol.HeaderReply: names().Result(id()), protocol.HeaderToken: token,
			protocol.HeaderCEID: id().String(), protocol.HeaderCEType: protocol.CETypeJob, protocol.HeaderCESubject: id().String(),
			protocol.HeaderCESource: "/namespaces/team-a/workflowruns/nightly-report", protocol.HeaderCESpec: "1.0",
		},
		Body: json.RawMessage(`{"url":"https://example.org/"}`),
	}
}

// golden are all messages, by file; the part of the name before the first dash is their schema.
func golden(t *testing.T) map[string]message {
	t.Helper()
	locked := jobMessage()
	locked.Headers[protocol.HeaderLockFence] = []string{"gpu-pool/eu=1795360000123", "mutex:team-a/db=orders=1795360000124"}
	traced := jobMessage()
	traced.Headers[protocol.HeaderTraceParent] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	msgID, failed := protocol.ResultMsgID(id(), token), &protocol.ResultError{Code: "NotFound", Message: "no such page"}
	return map[string]message{
		"job":              jobMessage(),
		"job-locked":       locked,
		"job-traced":       traced,
		"result-started":   result(t, protocol.StartedMsgID(id(), token), protocol.Result{Status: protocol.StatusStarted}),
		"result-succeeded": result(t, msgID, protocol.Result{Status: protocol.StatusSucceeded, Output: json.RawMessage(`{"status":200}`)}),
		"result-reference": result(t, msgID, protocol.Result{Status: protocol.StatusSucceeded, OutputRef: new(reference())}),
		"payload-chunk":    {Subject: names().PayloadChunks(nuid()), Body: json.RawMessage(storedOutput)},
		"payload-entry": {
			Subject: names().PayloadEntry(reference().Name), Headers: headers{protocol.HeaderRollup: protocol.RollupSubject},
			Body: encode(t, names().NewPayloadEntry(reference(), nuid(), 1)),
		},
		"result-failed": result(t, msgID, protocol.Result{Status: protocol.StatusFailed, Error: failed}),
		"result-final":  result(t, msgID, protocol.Result{Status: protocol.StatusFailed, Error: failed, Final: true}),
		"result-retry":  result(t, msgID, protocol.Result{Status: protocol.StatusRetry, RetryAfterMillis: 1500, Error: &protocol.ResultError{Code: "Quota", Message: "too many requests"}}),
		"control-run":   {Subject: names().Control(id().RunUID), Body: encode(t, protocol.Control{Action: protocol.ActionCancel})},
		"control-jobs":  {Subject: names().Control(id().RunUID), Body: encode(t, protocol.Control{Action: protocol.ActionCancel, Jobs: []string{id().String()}})},
	}
}

// mutation: renaming a header, a field or a token of a subject in pkg/protocol fails this.
func TestGoldenMessagesAreWhatTheCodeSends(t *testing.T) {
	for name, m := range golden(t) {
		t.Run(name, func(t *testing.T) {
			want, err := json.MarshalIndent(m, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("golden", name+".json")
			if *update {
				if err := os.WriteFile(file, append(want, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(want)+"\n", read(t, file)); diff != "" {
				t.Errorf("run go test ./docs/protocol -update, and look at the difference: %s", diff)
			}
		})
	}
	files, err := filepath.Glob("golden/*.json")
	if err != nil || len(files) != len(golden(t)) {
		t.Errorf("%d files, want %d (%v)", len(files), len(golden(t)), err)
	}
}

func TestGoldenMessagesAreWhatTheCodeReads(t *testing.T) {
	for name := range golden(t) {
		t.Run(name, func(t *testing.T) {
			var m message
			if err := json.Unmarshal([]byte(read(t, filepath.Join("golden", name+".json"))), &m); err != nil {
				t.Fatal(err)
			}
			switch kind, _, _ := strings.Cut(name, "-"); kind {
			case "job":
				if got, err := protocol.ParseJobID(m.Headers.values("Nats-Msg-Id")[0]); err != nil || got != id() {
					t.Errorf("job id %v, %v", got, err)
				}
				var want map[string]int64
				if name == "job-locked" {
					want = map[string]int64{"gpu-pool/eu": 1795360000123, "mutex:team-a/db=orders": 1795360000124}
				}
				fences, err := protocol.ParseLockFences(m.Headers.values("Syncopate-Lock-Fence"))
				if diff := cmp.Diff(want, fences); diff != "" || err != nil {
					t.Errorf("fences of locks: %v, %s", err, diff)
				}
			case "result":
				if got, err := names().ParseResult(m.Subject); err != nil || got != id() {
					t.Errorf("subject %v, %v", got, err)
				}
				r, err := protocol.DecodeResult(m.Body)
				if err == nil && r.OutputRef != nil {
					err = r.OutputRef.Check(id())
				}
				if err != nil {
					t.Error(err)
				}
			case "payload":
				e, err := protocol.DecodePayloadEntry(m.Body)
				if isEntry := m.Headers != nil; isEntry != (err == nil && e.Is(reference()) && e.NUID == nuid()) {
					t.Errorf("entry %+v, %v", e, err)
				}
			case "control":
				if uid, ok := names().ParseControl(m.Subject); !ok || uid != id().RunUID {
					t.Errorf("subject %v, %v", uid, ok)
				}
			}
		})
	}
}

// mutation: a schema without one of its required members, or with another pattern, fails this
// or the next.
func TestGoldenMessagesKeepTheirSchema(t *testing.T) {
	for name := range golden(t) {
		t.Run(name, func(t *testing.T) {
			kind, _, _ := strings.Cut(name, "-")
			if err := against(t, kind, read(t, filepath.Join("golden", name+".json"))); err != nil {
				t.Error(err)
			}
		})
	}
}

// mutations: a DecodeResult that takes a member of another case, which is an unknown one, refuses
// "an error beside its like". One that reads an int64 refuses "a wait with a fraction of 0", which
// is an integer for the schema, or "a size with a fraction of 0". A schema that does not ask for an
// object in error takes "failed with null", and one that takes a null for a reference refuses "an
// output beside nulls".
func TestSchemasRefuseWhatTheCodeRefuses(t *testing.T) {
	good := golden(t)["result-succeeded"]
	for name, tc := range map[string]struct {
		body string
		ok   bool
	}{
		"an output of any type":        {`{"status":"Succeeded","output":[1]}`, true},
		"fields of a later version":    {`{"status":"Succeeded","later":1}`, true},
		"an error beside its like":     {`{"status":"Succeeded","output":{"rows":3},"Error":""}`, true},
		"a name in capitals":           {`{"Status":"Succeeded"}`, false},
		"retry without an error":       {`{"status":"Retry","retryAfterMillis":0}`, true},
		"no status":                    {`{}`, false},
		"a status nobody knows":        {`{"status":"Done"}`, false},
		"failed without an error":      {`{"status":"Failed"}`, false},
		"an error that is text":        {`{"status":"Failed","error":"x"}`, false},
		"a negative wait":              {`{"status":"Retry","retryAfterMillis":-1}`, false},
		"a wait that is text":          {`{"status":"Retry","retryAfterMillis":"1s"}`, false},
		"a wait with a fraction":       {`{"status":"Retry","retryAfterMillis":1500.5}`, false},
		"a wait with a fraction of 0":  {`{"status":"Retry","retryAfterMillis":1500.0}`, true},
		"a body that is not an object": {`"Succeeded"`, false},
		"an output and a reference":    {`{"status":"Succeeded","output":1,"outputRef":` + string(encode(t, reference())) + `}`, false},
		"a null beside a reference":    {`{"status":"Succeeded","output":null,"outputRef":` + string(encode(t, reference())) + `}`, true},
		"a reference beside nulls":     {`{"output":null,"status":"Succeeded","error":null,"final":null,"outputRef":` + string(encode(t, reference())) + `}`, true},
		"an output beside nulls":       {`{"status":"Succeeded","output":7,"outputRef":null,"error":null,"final":null,"retryAfterMillis":null}`, true},
		"null for an output":           {`{"status":"Succeeded","output":null,"outputRef":null}`, true},
		"an error of nulls":            {`{"status":"Failed","error":{"code":null,"message":null}}`, true},
		"a wait beside nulls":          {`{"status":"Retry","output":null,"outputRef":null,"error":null,"retryAfterMillis":null}`, true},
		"failed with null":             {`{"status":"Failed","error":null}`, false},
		"no status but null":           {`{"status":null}`, false},
		"a reference that is text":     {`{"status":"Succeeded","outputRef":"` + reference().Name + `"}`, false},
		"a size with a fraction of 0":  {`{"status":"Succeeded","outputRef":` + strings.Replace(string(encode(t, reference())), `"size":23`, `"size":23.0`, 1) + `}`, true},
		"a size with a fraction":       {`{"status":"Succeeded","outputRef":` + strings.Replace(string(encode(t, reference())), `"size":23`, `"size":23.5`, 1) + `}`, false},
		"a reference":                  {`{"status":"Succeeded","outputRef":` + string(encode(t, reference())) + `}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := good
			m.Body = json.RawMessage(tc.body)
			if err := against(t, "result", string(encode(t, m))); (err == nil) != tc.ok {
				t.Errorf("schema: %v", err)
			}
			_, err := protocol.DecodeResult(m.Body)
			if (err == nil) != tc.ok || err != nil && !errors.Is(err, protocol.ErrResult) {
				t.Errorf("code: %v", err)
			}
		})
	}
}

// mutation: a schema that does not ask for a member of the reference, or with another pattern or
// limit, fails this.
func TestTheSchemaRefusesWhatTheCodeDoesNotTakeForAReference(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*protocol.OutputRef)
		ok   bool
	}{
		"one that is good":         {func(*protocol.OutputRef) {}, true},
		"nothing":                  {func(r *protocol.OutputRef) { *r = protocol.OutputRef{} }, false},
		"another algorithm":        {func(r *protocol.OutputRef) { r.Digest = "md5:" + r.Digest[7:] }, false},
		"a name without a digest":  {func(r *protocol.OutputRef) { r.Name = id().String() }, false},
		"a name without a job":     {func(r *protocol.OutputRef) { r.Name = r.Digest[7:] }, false},
		"more than the store has":  {func(r *protocol.OutputRef) { r.Size = protocol.MaxPayloadBytes + 1 }, false},
		"as much as the store has": {func(r *protocol.OutputRef) { r.Size = protocol.MaxPayloadBytes }, true},
		"less than nothing":        {func(r *protocol.OutputRef) { r.Size = -1 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			ref := reference()
			tc.edit(&ref)
			m := golden(t)["result-succeeded"]
			m.Body = encode(t, protocol.Result{Status: protocol.StatusSucceeded, OutputRef: &ref})
			if err := against(t, "result", string(encode(t, m))); (err == nil) != tc.ok {
				t.Errorf("schema: %v", err)
			}
			if err := ref.CheckForm(); (err == nil) != tc.ok {
				t.Errorf("code: %v", err)
			}
		})
	}
	var m struct{ Body map[string]any }
	if err := json.Unmarshal([]byte(read(t, "golden/result-reference.json")), &m); err != nil {
		t.Fatal(err)
	}
	ref, ok := m.Body["outputRef"].(map[string]any)
	for member := range ref {
		less := maps.Clone(ref)
		delete(less, member)
		m := golden(t)["result-succeeded"]
		m.Body = encode(t, map[string]any{"status": "Succeeded", "outputRef": less})
		if against(t, "result", string(encode(t, m))) == nil {
			t.Errorf("the schema takes a reference without %s", member)
		}
	}
	if !ok || len(ref) != 3 {
		t.Errorf("reference %v", ref)
	}
}

// mutation: a golden message that the page does not name, or a header that it leaves
// out, fails this.
func TestThePageNamesEverything(t *testing.T) {
	page := read(t, "../protocol.md")
	want := []string{
		"job.schema.json", "result.schema.json", "control.schema.json", "payload.schema.json",
		"`" + names().PayloadsBucket() + "`", names().PayloadsStream(), "`" + names().PayloadChunks("<nuid>") + "`",
		names().PayloadsBucket() + ".M.<name in base64url>`", "over 64 KiB", "above 8 MiB",
		names().JobsStream(), names().ResultsStream(), names().ControlStream(), names().DeadLettersStream(),
		"fnv1a32(runUID) mod 64",
	}
	for name, m := range golden(t) {
		want = append(want, "golden/"+name+".json")
		for header := range m.Headers {
			want = append(want, "`"+header+"`")
		}
	}
	for _, status := range []protocol.ResultStatus{protocol.StatusStarted, protocol.StatusSucceeded, protocol.StatusFailed, protocol.StatusRetry} {
		want = append(want, `"status": "`+string(status)+`"`)
	}
	for _, w := range want {
		if !strings.Contains(page, w) {
			t.Errorf("docs/protocol.md does not name %s", w)
		}
	}
}

// The tables of contract.json, which a test of internal/bus compares with the code, stand on the
// page row by row.
//
// mutation: a row, cell or order that differs between the page and contract.json fails this, and so
// does a row too many.
func TestThePageHasTheRetryContract(t *testing.T) {
	var tables []struct {
		Title   string
		Columns []string
		Rows    []map[string]string
	}
	if err := json.Unmarshal([]byte(read(t, "contract.json")), &tables); err != nil {
		t.Fatal(err)
	}
	page := read(t, "../protocol.md")
	for _, table := range tables {
		t.Run(table.Title, func(t *testing.T) {
			line := func(cell func(column string) string) string {
				var b strings.Builder
				for _, column := range table.Columns {
					b.WriteString("| " + cell(column) + " ")
				}
				return b.String() + "|"
			}
			want := []string{line(func(column string) string { return column }), "|" + strings.Repeat("---|", len(table.Columns))}
			for _, row := range table.Rows {
				want = append(want, line(func(column string) string { return row[column] }))
			}
			if diff := cmp.Diff(want, rowsUnder(page, table.Title)); diff != "" {
				t.Errorf("docs/protocol.md differs from contract.json (-contract +page):\n%s", diff)
			}
		})
	}
	if len(tables) != 4 {
		t.Errorf("contract.json has %d tables", len(tables))
	}
}

// rowsUnder is all lines of tables between a heading of the page and the next one.
func rowsUnder(page, title string) []string {
	_, rest, _ := strings.Cut(page, "\n### "+title+"\n")
	section, _, _ := strings.Cut(rest, "\n#")
	var rows []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "|") {
			rows = append(rows, strings.TrimRight(line, "\n"))
		}
	}
	return rows
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func against(t *testing.T, kind, doc string) error {
	t.Helper()
	var schema spec.Schema
	if err := json.Unmarshal([]byte(read(t, kind+".schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	var data any
	if err := json.NewDecoder(bytes.NewReader([]byte(doc))).Decode(&data); err != nil {
		t.Fatal(err)
	}
	return validate.NewSchemaValidator(&schema, nil, "", strfmt.Default).Validate(data).AsError()
}
