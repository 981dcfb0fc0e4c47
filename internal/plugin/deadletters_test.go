// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// publish sends a result as a worker does.
func (o *operator) publish(id protocol.JobID, body, token string) {
	o.t.Helper()
	nc, err := nats.Connect(o.nats.URL(), natstest.Patient())
	if err != nil {
		o.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		o.t.Fatal(err)
	}
	m := nats.NewMsg(protocol.Names{Prefix: "syncopate"}.Result(id))
	m.Data = []byte(body)
	m.Header.Set(protocol.HeaderToken, token)
	m.Header.Set(protocol.HeaderMsgID, protocol.ResultMsgID(id, token))
	if _, err := js.PublishMsg(o.t.Context(), m); err != nil {
		o.t.Fatal(err)
	}
}

// buried is a server with three letters: 1 and 3 may be redriven, 2 is unusable; the run of 3 does
// not exist any more.
func buried(t *testing.T) (*plugin, *operator) {
	t.Helper()
	p := newPlugin(t, testRun("team-a", "report", "uid-1"), testRun("team-b", "other", "uid-2"))
	p.nats = natstest.Start(t)
	o := startOperator(t, p.nats)
	o.bury(job("uid-1", 1), "DeliveriesExhausted", succeeded)
	o.bury(job("uid-2", 4), "ResultRejected", `{"status":"Done"}`)
	o.bury(job("uid-3", 1), "DeliveriesExhausted", "no JSON\x1b[2J\nsecond line")
	return p, o
}

func lettersOf(t *testing.T, p *plugin, line ...string) []uint64 {
	t.Helper()
	out, _, err := p.call(append([]string{"dead-letters", "list", "-o", "json"}, line...)...)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		DeadLetters []struct{ Sequence uint64 }
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	var all []uint64
	for _, l := range list.DeadLetters {
		all = append(all, l.Sequence)
	}
	return all
}

// fixed replaces what no clock of the test decides.
func fixed(s string) string {
	s = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`).ReplaceAllString(s, "TIME")
	s = regexp.MustCompile(`\(\S+ ago\)`).ReplaceAllString(s, "(AGE ago)")
	return regexp.MustCompile(`(?m)^(\d+ +)\S+ +`).ReplaceAllString(s, "${1}AGE  ")
}

// mutations: config that takes the environment before the flag, or never, makes this fail.
func TestNATSOfTheEnvironment(t *testing.T) {
	p, _ := buried(t)
	want := p.must("dead-letters", "list")
	p.env = map[string]string{"NATS_URL": "nats://127.0.0.1:1"}
	if got := p.must("dead-letters", "list"); got != want {
		t.Errorf("the flag goes first:\n%s", got)
	}
	p.env["NATS_URL"], p.nats = p.nats.URL(), nil
	if got := p.must("dead-letters", "list"); got != want {
		t.Errorf("without a flag:\n%s", got)
	}
}

// mutation: a token or a control character let through, a name looked up in one namespace only, or
// a field renamed makes this fail.
func TestDeadLettersAsPeopleSeeThem(t *testing.T) {
	t.Parallel()
	p, o := buried(t)
	token := o.keys.Sign(job("uid-1", 1))
	for name, line := range map[string][]string{
		"list.txt": {"list"}, "list.json": {"list", "-o", "json"},
		"show.txt": {"show", "1"}, "show.json": {"show", "1", "-o", "json"},
		"show-refused.txt": {"show", "2"}, "show-gone.txt": {"show", "3"}, "show-text.json": {"show", "3", "-o", "json"},
	} {
		out := p.must(append([]string{"dead-letters"}, line...)...)
		golden(t, name, fixed(out))
		if strings.Contains(out, token) || strings.Contains(out, "\x1b") {
			t.Errorf("%s has a token or a control character: %q", name, out)
		}
	}
}

func TestAListCanBeNarrowed(t *testing.T) {
	t.Parallel()
	p, _ := buried(t)
	for name, tt := range map[string]struct {
		line []string
		want []uint64
	}{
		"all":      {nil, []uint64{1, 2, 3}},
		"a run":    {[]string{"--run", "report"}, []uint64{1}},
		"a reason": {[]string{"--reason", "DeliveriesExhausted"}, []uint64{1, 3}},
		"both":     {[]string{"--run", "report", "--reason", "ResultRejected"}, nil},
		"a bound":  {[]string{"--limit", "2"}, []uint64{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, lettersOf(t, p, tt.line...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, notes, err := p.call("dead-letters", "list", "--limit", "2"); err != nil || !strings.Contains(notes, "1 more") {
		t.Errorf("%q, %v", notes, err)
	}
	if _, _, err := p.call("dead-letters", "list", "--run", "other"); err == nil || !strings.Contains(err.Error(), "team-a/other") {
		t.Errorf("a run of another namespace: %v", err)
	}
}

// "No dead letters" of a word that is no reason has people think that there are none.
//
// mutations: reasons as they were typed, and any word taken, make this fail.
func TestAReasonIsOneThatLettersHave(t *testing.T) {
	p, _ := buried(t)
	if diff := cmp.Diff([]uint64{1, 3}, lettersOf(t, p, "--reason", "deliveriesexhausted")); diff != "" {
		t.Errorf("letters (-want +got):\n%s", diff)
	}
	if out, notes, err := p.call("dead-letters", "redrive", "--reason", "deliveriesExhausted", "--dry-run"); err != nil || strings.Count(out, "would be redriven") != 2 {
		t.Errorf("%q, %q, %v", out, notes, err)
	}
	for _, command := range []string{"list", "redrive"} {
		_, _, err := p.call("dead-letters", command, "--reason", "Exhausted")
		if _, usage := errors.AsType[*UsageError](err); !usage || !strings.Contains(err.Error(), "DeliveriesExhausted") {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// Whoever may publish results says of which run his are.
//
// mutation: letters without a valid token in why, or in the list of the run, or shown as if they
// were of it, make this fail.
func TestForgedResultsAreNotShownAsThoseOfTheRun(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, waitingRun("report", "uid-1", 1))
	p.nats = natstest.Start(t)
	o := startOperator(t, p.nats)
	o.publish(job("uid-1", 1), strings.Repeat("x", 9000), "k1.forged")
	bustest.Eventually(t, "it is put aside", func() bool { return len(lettersOf(t, p)) == 1 })
	if out := p.must("why", "report"); strings.Contains(out, "dead letter 1") {
		t.Errorf("why:\n%s", out)
	}
	if of := lettersOf(t, p, "--run", "report"); len(of) > 0 {
		t.Errorf("letters of the run: %v", of)
	}
	for name, line := range map[string][]string{"list": {"list"}, "list of the run": {"list", "--run", "report", "--reason", "rejected"}, "show": {"show", "1"}} {
		out := p.must(append([]string{"dead-letters"}, line...)...)
		if !strings.Contains(out, "team-a/report (not proved)") || !strings.Contains(out, "9000") {
			t.Errorf("%s:\n%s", name, out)
		}
		if name == "show" && !regexp.MustCompile(`Body \(9000 bytes, of which the first 40\d\d are kept\)`).MatchString(out) {
			t.Errorf("show:\n%s", out)
		}
	}
}

// mutation: an error instead of a note, or no second try in the own namespace, makes this fail.
func TestLettersAreListedWithoutTheNamesOfTheirRuns(t *testing.T) {
	t.Parallel()
	p, _ := buried(t)
	for name, tt := range map[string]struct {
		cluster    func() (client.Client, string, error)
		want, note string
	}{
		"no cluster at all": {func() (client.Client, string, error) { return nil, "", errors.New("no\nkubeconfig") }, "uid-1", "warning: runs are shown by UID: no kubeconfig\n"},
		"only the own namespace": {func() (client.Client, string, error) {
			c := fakeCluster(t, testRun("team-a", "report", "uid-1")).WithInterceptorFuncs(forbid(
				func(_ client.ObjectList, o *client.ListOptions) bool { return o.Namespace == "" })).Build()
			return c, "team-a", nil
		}, "team-a/report", ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := *p
			q.cluster = tt.cluster
			out, notes, err := q.call("dead-letters", "list")
			if err != nil || !strings.Contains(out, tt.want) || !strings.Contains(out, "uid-2") || notes != tt.note {
				t.Errorf("%s\nnotes %q, %v", out, notes, err)
			}
		})
	}
}

// mutation: publishing without the original headers, or leaving the letter, makes this fail.
func TestRedriveBringsTheResultBackToTheOperator(t *testing.T) {
	t.Parallel()
	p, o := buried(t)
	if out := p.must("dead-letters", "redrive", "1", "--dry-run"); !strings.Contains(out, "dead letter 1 would be redriven to syncopate.results.") {
		t.Errorf("dry run: %q", out)
	}
	if diff := cmp.Diff([]uint64{1, 2, 3}, lettersOf(t, p)); diff != "" || len(o.got) > 0 {
		t.Fatalf("the dry run did something: %d results; letters (-want +got):\n%s", len(o.got), diff)
	}
	if out := p.must("dead-letters", "redrive", "--run", "report"); !strings.Contains(out, "dead letter 1 redriven to syncopate.results.") {
		t.Errorf("redrive: %q", out)
	}
	d := o.next()
	if d.ID != job("uid-1", 1) || string(d.Result.Output) != `{"pages":3}` {
		t.Errorf("result: %+v", d)
	}
	if err := d.Settle(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]uint64{2, 3}, lettersOf(t, p)); diff != "" {
		t.Errorf("letters (-want +got):\n%s", diff)
	}
}

// mutation: stopping at the first refusal, or success in spite of it, makes this fail.
func TestRedriveRefusesWhatIsHopelessAndGoesOn(t *testing.T) {
	t.Parallel()
	p, o := buried(t)
	out, notes, err := p.call("dead-letters", "redrive", "--all")
	if err == nil || err.Error() != "1 of 3 dead letters were not redriven" {
		t.Errorf("error: %v", err)
	}
	if strings.Count(out, " redriven to ") != 2 || !strings.Contains(notes, "dead letter 2: it can never be applied: its body is unusable") ||
		!strings.Contains(notes, "--force") || strings.Count(notes, "\n") != 1 {
		t.Errorf("out %q, notes %q", out, notes)
	}
	got := map[protocol.JobID]bool{o.next().ID: true, o.next().ID: true}
	if diff := cmp.Diff(map[protocol.JobID]bool{job("uid-1", 1): true, job("uid-3", 1): true}, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	p.must("dead-letters", "redrive", "2", "--force")
	if d := o.next(); d.ID != job("uid-2", 4) || d.Rejected == nil {
		t.Errorf("by force: %+v", d)
	}
	_, notes, err = p.call("dead-letters", "redrive", "2")
	if err == nil || !strings.Contains(notes, "no such dead letter") {
		t.Errorf("gone: %v, notes %q", err, notes)
	}
}

// flooded is a server with three letters that can never be applied before one that may.
func flooded(t *testing.T) (*plugin, *operator) {
	t.Helper()
	p := newPlugin(t, testRun("team-a", "report", "uid-1"))
	p.nats = natstest.Start(t)
	o := startOperator(t, p.nats)
	for attempt := range int32(3) {
		o.bury(job("uid-2", attempt+1), "ResultRejected", `{"status":"Done"}`)
	}
	o.bury(job("uid-1", 1), "DeliveriesExhausted", succeeded)
	return p, o
}

// mutation: a limit that counts what cannot be redriven makes this fail.
func TestRedriveComesToWhatStandsBehindHopelessLetters(t *testing.T) {
	t.Parallel()
	p, o := flooded(t)
	out, notes, err := p.call("dead-letters", "redrive", "--all", "--limit", "2")
	if !strings.Contains(out, "dead letter 4 redriven to ") || err == nil || err.Error() != "3 of 4 dead letters were not redriven" ||
		!strings.Contains(notes, "dead letter 1: it can never be applied") || strings.Contains(notes, "run it again") {
		t.Errorf("out %q, notes %q, %v", out, notes, err)
	}
	if got := o.next().ID; got != job("uid-1", 1) {
		t.Errorf("redriven: %v", got)
	}
}

// mutation: success of --all with letters left makes this fail.
func TestRedriveOfAllFailsIfSomeAreLeft(t *testing.T) {
	t.Parallel()
	p, o := buried(t)
	out, notes, err := p.call("dead-letters", "redrive", "--all", "--limit", "1")
	if strings.Count(out, " redriven to ") != 1 || err == nil || !strings.Contains(notes, "2 more match") {
		t.Errorf("out %q, notes %q, %v", out, notes, err)
	}
	o.next()
	if out, notes, err = p.call("dead-letters", "redrive", "--reason", "DeliveriesExhausted", "--limit", "1"); err != nil || strings.Count(out, " redriven to ") != 1 {
		t.Errorf("out %q, notes %q, %v", out, notes, err)
	}
	o.next()
}

// mutation: the oldest ones alone make this fail.
func TestTheConsoleShowsFirstWhatCanBeRedriven(t *testing.T) {
	t.Parallel()
	p, _ := flooded(t)
	cluster := func() (client.Client, string, error) { return p.cluster() }
	a := &app{Env: Env{Out: io.Discard, Err: io.Discard, Getenv: func(string) string { return "" }, Cluster: cluster}, nats: natsFlags{url: p.nats.URL()}}
	page, err := consoleLetters{a}.List(t.Context(), 2)
	if got := page.All; err != nil || len(got) != 2 || got[0].Sequence != 4 || got[1].Sequence != 1 || page.More != 2 {
		t.Errorf("%+v, %v", page, err)
	}
}

// mutation: an error of the wrong kind gives the wrong exit code, and makes this fail.
func TestACommandLineThatMakesNoSenseIsAUsageError(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, testRun("team-a", "report", "uid-1"))
	for name, tt := range map[string]struct {
		line  string
		usage bool
	}{
		"unknown command":             {"grow report", true},
		"unknown command in a group":  {"dead-letters drop", true},
		"unknown flag":                {"tree report --deep", true},
		"bad value of a flag":         {"dead-letters list --limit x", true},
		"limit out of bounds":         {"dead-letters list --limit 0", true},
		"unknown format":              {"tree report -o yaml", true},
		"table is no format of why":   {"why report -o table", true},
		"no run":                      {"tree", true},
		"version of something else":   {"version x", true},
		"two runs":                    {"why a b", true},
		"no number":                   {"dead-letters show first", true},
		"number 0":                    {"dead-letters redrive 0", true},
		"redrive of nothing":          {"dead-letters redrive", true},
		"redrive of two things":       {"dead-letters redrive 1 --all", true},
		"redrive of two other things": {"dead-letters redrive --reason x --all", true},
		"a run that does not exist":   {"tree missing", false},
		"no NATS":                     {"dead-letters list --nats-url nats://127.0.0.1:1", false},
		"help":                        {"dead-letters redrive --help", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := p.call(strings.Fields(tt.line)...)
			if _, usage := errors.AsType[*UsageError](err); usage != tt.usage || (err == nil && name != "help") {
				t.Errorf("%v", err)
			}
		})
	}
}

// mutation: a version command that asks the cluster, or prints the version only, makes this fail.
func TestThePluginSaysItsVersionWithoutACluster(t *testing.T) {
	t.Parallel()
	p := newPlugin(t)
	p.cluster = func() (client.Client, string, error) { return nil, "", errors.New("no cluster") }
	if out, want := p.must("version"), "kubectl-syncopate v1.2.3 (commit 1a2b3c, go1.26.8, linux/amd64)\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestTreeAndWhyOfARun(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, testRun("team-a", "report", "uid-1"))
	for name, line := range map[string][]string{
		"tree.txt": {"tree", "report"}, "tree.json": {"tree", "report", "-o", "json"},
		"why.txt": {"why", "report"}, "why.json": {"why", "report", "-o", "json"},
	} {
		golden(t, name, p.must(line...))
	}
	// mutation: colours in JSON, or none on a terminal, make this fail.
	p.color = true
	if out := p.must("tree", "report"); !strings.Contains(out, "\x1b[") {
		t.Error("no colours on a terminal")
	}
	if out := p.must("tree", "report", "-o", "json"); strings.Contains(out, "x1b") || strings.Contains(out, "u001b") {
		t.Error("colours in JSON")
	}
}

// mutation: a refusal of the policies as an error makes this fail.
func TestWhyWorksForWhoMayNotSeePolicies(t *testing.T) {
	t.Parallel()
	p := newPlugin(t)
	p.cluster = func() (client.Client, string, error) {
		run := testRun("team-a", "report", "uid-1")
		return fakeCluster(t, run).WithInterceptorFuncs(forbid(func(list client.ObjectList, _ *client.ListOptions) bool {
			_, partial := list.(*metav1.PartialObjectMetadataList)
			return !partial
		})).Build(), "team-a", nil
	}
	if out := p.must("why", "report"); !strings.Contains(out, "was not looked at") {
		t.Error(out)
	}
}

func TestNamesOfRunsAreCompleted(t *testing.T) {
	t.Parallel()
	p := newPlugin(t, testRun("team-a", "report", "uid-1"), testRun("team-b", "other", "uid-2"))
	for _, line := range []string{"tree", "why"} {
		out, _, err := p.call("__complete", line, "")
		if err != nil || !strings.HasPrefix(out, "report\n:4") {
			t.Errorf("%s: %q, %v", line, out, err)
		}
	}
}

func TestALongBodyIsCut(t *testing.T) {
	t.Parallel()
	list := make([]int, 10*maxBodyLines)
	body, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	lines := ShownLetter{Body: body}.bodyLines()
	if len(lines) != maxBodyLines+1 || !strings.Contains(lines[maxBodyLines], fmt.Sprintf("%d more lines", len(list)+2-maxBodyLines)) {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	if l := (ShownLetter{BodyText: strings.Repeat("x", 5*maxLineChars)}).bodyLines(); len(l) != 1 || len([]rune(l[0])) != maxLineChars {
		t.Errorf("%d lines", len(l))
	}
}

func TestABodyIsShownAsWhatItIs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body string
		want ShownLetter
	}{
		"JSON":                     {`{"a":1}`, ShownLetter{Body: json.RawMessage(`{"a":1}`)}},
		"text":                     {"a\nb", ShownLetter{BodyText: "a\nb"}},
		"bytes":                    {"\xff\xfe", ShownLetter{BodyBase64: "//4="}},
		"JSON that is not UTF-8":   {"\"\xff\"", ShownLetter{BodyBase64: "Iv8i"}},
		"nothing":                  {"", ShownLetter{}},
		"JSON with something else": {`{"a":1} x`, ShownLetter{BodyText: `{"a":1} x`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.want.Headers = map[string][]string{}
			if diff := cmp.Diff(tt.want, shown(Letter{}, deadletters.Letter{Body: []byte(tt.body), StoredAt: time.Time{}})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The permissions are those of docs/kubectl-plugin.md; mutation: leaving one out, or not giving
// user and password, makes this fail.
func TestThePermissionsOfThePageAreEnough(t *testing.T) {
	t.Parallel()
	const api, dead = "$JS.API.", ".SYNCOPATE_DEADLETTERS"
	allowed := []string{
		api + "STREAM.INFO" + dead, api + "CONSUMER.CREATE" + dead + ".>", api + "CONSUMER.INFO" + dead + ".>",
		api + "CONSUMER.MSG.NEXT" + dead + ".>", api + "STREAM.MSG.GET" + dead, api + "STREAM.MSG.DELETE" + dead, "syncopate.results.>",
		api + "STREAM.INFO.SYNCOPATE_JOBS", api + "CONSUMER.INFO.SYNCOPATE_JOBS.>",
	}
	p := newPlugin(t, waitingRun("report", "uid-1", 1))
	p.nats = natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "operator"}, {Username: "people", Password: "secret", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: allowed}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}}}
		o.NoAuthUser = "operator"
	})
	o := startOperator(t, p.nats)
	o.bury(job("uid-1", 1), "DeliveriesExhausted", succeeded)
	p.env = map[string]string{"NATS_USER": "people", "NATS_PASSWORD": "secret"}
	if out := p.must("dead-letters", "list"); !strings.Contains(out, "team-a/report") {
		t.Error(out)
	}
	p.must("dead-letters", "show", "1")
	newWorkers(t, p.nats).dispatch(job("uid-1", 1))
	bustest.Eventually(t, "why tells of the letter and of the job", func() bool { // which its consumer counts shortly after the stream has kept it
		out := p.must("why", "report")
		return strings.Contains(out, "dead letter 1") && strings.Contains(out, "its job was not delivered to any yet")
	})
	p.must("dead-letters", "redrive", "1")
	o.settle(nil)
	p.env["NATS_PASSWORD"] = "wrong"
	if _, _, err := p.call("dead-letters", "list"); err == nil || !strings.Contains(strings.ToLower(err.Error()), "authorization") {
		t.Errorf("a wrong password: %v", err)
	}
}

// A port-forward to the NATS of another cluster was left open. Who has a right in NATS alone
// redrives all the same: nobody tells whose it is.
//
// mutations: a redrive that does not ask whose NATS it is, one that does so for the letters of
// --all alone, and one that wants an answer, make this fail; so does a button that does not ask.
func TestRedriveOfAnotherCluster(t *testing.T) {
	p := newPlugin(t)
	p.nats = natstest.Start(t)
	conn := bustest.Connect(t, bus.Config{URL: p.nats.URL(), Installation: "theirs"})
	bustest.Eventually(t, "streams", func() bool { return conn.EnsureStreams(t.Context()) == nil })
	o := startOperator(t, p.nats)
	o.bury(job("uid-1", 1), "DeliveriesExhausted", succeeded)
	o.bury(job("uid-1", 2), "DeliveriesExhausted", succeeded)
	silent := p.cluster
	of := func(uid types.UID) func() (client.Client, string, error) {
		c := fakeCluster(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: uid}}).Build()
		return func() (client.Client, string, error) { return c, "team-a", nil }
	}
	p.cluster = of("mine")
	for _, which := range []string{"1", "--all"} {
		if out, _, err := p.call("dead-letters", "redrive", which); out != "" || !errors.Is(err, errOtherCluster) {
			t.Errorf("%s: %q, %v", which, out, err)
		}
	}
	button := consoleLetters{&app{Env: Env{Cluster: p.cluster, Getenv: func(string) string { return "" }}, nats: natsFlags{url: p.nats.URL(), prefix: protocol.DefaultPrefix}}}
	if err := button.Redrive(t.Context(), 1); !errors.Is(err, errOtherCluster) {
		t.Errorf("%v", err)
	}
	for _, line := range [][]string{{"list"}, {"show", "1"}} { // to read does no harm
		out, note, err := p.call(append([]string{"dead-letters"}, line...)...)
		if err != nil || !strings.Contains(out, "DeliveriesExhausted") || !strings.Contains(note, "warning: NATS is that of another cluster") || !strings.Contains(note, "theirs") {
			t.Errorf("%s: %q, %q, %v", line, out, note, err)
		}
	}
	if page, err := button.List(t.Context(), 10); err != nil || len(page.All) != 2 || !strings.Contains(page.Warning, "its streams say theirs") {
		t.Errorf("%+v, %v", page, err)
	}
	p.cluster = of("theirs")
	p.must("dead-letters", "list")
	p.must("dead-letters", "show", "1")
	p.must("dead-letters", "redrive", "1")
	p.cluster = silent
	const note = "whether NATS is your kubeconfig's cluster's is not known"
	if out, errOut, err := p.call("dead-letters", "redrive", "2"); err != nil || !strings.Contains(out, "redriven") || !strings.Contains(errOut, note) {
		t.Errorf("%q, %q, %v", out, errOut, err)
	}
}
