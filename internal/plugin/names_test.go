// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// pages is a cluster that gives metadata page by page, in the order of names, as an
// API server does.
type pages struct {
	client.Client
	t      *testing.T
	asked  int           // how many pages
	broken int           // which page has an error, from 1 on; 0: none
	within time.Duration // what a page has to be asked for within; 0: any time
}

func (p *pages) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	names, ok := list.(*metav1.PartialObjectMetadataList)
	if !ok {
		return p.Client.List(ctx, list, opts...)
	}
	p.asked++
	if until, ok := ctx.Deadline(); p.within > 0 && (!ok || time.Until(until) > p.within) {
		p.t.Errorf("page %d has until %v", p.asked, until)
	}
	if p.asked == p.broken {
		return context.DeadlineExceeded
	}
	o := (&client.ListOptions{}).ApplyOptions(opts)
	limit, from := int(o.Limit), 0
	if o.Continue != "" {
		from, _ = strconv.Atoi(o.Continue)
	}
	o.Limit, o.Continue = 0, ""
	if err := p.Client.List(ctx, list, o); err != nil {
		return err
	}
	slices.SortFunc(names.Items, func(a, b metav1.PartialObjectMetadata) int { return strings.Compare(a.Name, b.Name) })
	names.Items = names.Items[min(from, len(names.Items)):]
	if limit > 0 && len(names.Items) > limit {
		names.Items, names.Continue = names.Items[:limit], strconv.Itoa(from+limit)
	}
	return nil
}

// paged has a plugin's cluster give pages.
func paged(p *plugin) *pages {
	c, _, err := p.cluster()
	if err != nil {
		p.t.Fatal(err)
	}
	all := &pages{Client: c, t: p.t}
	p.cluster = func() (client.Client, string, error) { return all, "team-a", nil }
	return all
}

// completed are the names that a command offers.
func (p *plugin) completed(line ...string) []string {
	p.t.Helper()
	out, _, err := p.call(append([]string{"__complete"}, line...)...)
	if err != nil {
		p.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if lines[len(lines)-1] != ":4" {
		p.t.Errorf("%v: %q", line, out)
	}
	return lines[:len(lines)-1]
}

// mutations: a completion of the first page alone, one that offers names with another beginning,
// and one that goes on when it has enough, make this fail.
func TestCompletionFindsNamesAmongMany(t *testing.T) {
	var all []client.Object
	for i := range 2*pageSize + 10 {
		name := fmt.Sprintf("nightly-%04d", i)
		all = append(all, testRun("team-a", name, "u-"+name), &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}})
	}
	for _, name := range []string{"report-a", "report-b", "rest"} {
		all = append(all, testRun("team-a", name, "u-"+name), &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}})
	}
	p := newPlugin(t, all...)
	cluster := paged(p)
	cluster.within = completionTime
	for _, line := range [][]string{{"tree"}, {"approve"}, {"rerun"}, {"dead-letters", "list", "--run"}, {"submit"}, {"diff"}} {
		if got := p.completed(append(line, "rep")...); !slices.Equal(got, []string{"report-a", "report-b"}) {
			t.Errorf("%v: %v", line, got)
		}
		cluster.asked = 0
		if got := p.completed(append(line, "night")...); len(got) != maxCompletions || got[0] != "nightly-0000" || cluster.asked != 1 {
			t.Errorf("%v: %d names of %d pages: %v", line, len(got), cluster.asked, got)
		}
	}
	cluster.asked, cluster.broken = 0, 3
	if got := p.completed("tree", "nightly-09"); len(got) != 100 {
		t.Errorf("when it took too long: %d names", len(got))
	}
	cluster.asked, cluster.broken = 0, 1
	if out, _, _ := p.call("__complete", "tree", "rep"); !strings.HasPrefix(out, ":1\n") {
		t.Errorf("when nothing is known: %q", out)
	}
}

// mutations: revisions of the first page alone make this fail.
func TestRevisionsAreFoundAmongMany(t *testing.T) {
	_, first, one := reportOf(t, "t.one", 5)
	w, second, two := reportOf(t, "t.two", 6)
	all := []client.Object{w, first, second}
	for i := range pageSize + 10 {
		r := first.DeepCopy()
		r.Name, r.CreationTimestamp = template.ObjectName("report", fmt.Sprintf("%020d", i)), metav1.Unix(1, 0)
		all = append(all, r)
	}
	s := newStarter(t, all...)
	paged(s.plugin)
	if out := s.must("diff", "report"); !strings.Contains(out, "--- report "+one+"\n+++ report "+two+"\n") {
		t.Error(out)
	}
	s.must("submit", "report", "--revision", one[:6])
	if got := s.made[0].Spec.WorkflowRef.Revision; got != one {
		t.Errorf("revision %q", got)
	}
	if _, _, err := s.call("submit", "report", "--revision", "0"); err == nil || len(err.Error()) > 1000 {
		t.Errorf("%v", err)
	}
}

// Who may create runs need not see what they follow.
//
// mutations: a list that is needed for a whole revision, a name of one that is not there that is
// taken, and the beginning of one that is taken for all of it, make this fail.
func TestARevisionByItsNameNeedsNoRights(t *testing.T) {
	w, r, revision := reportOf(t, "t", 1)
	other := strings.Repeat("0", 20)
	const unseen = "you may not list them: give all 20 digits"
	for name, c := range map[string]struct {
		hidden, get, list bool // the Workflow is hidden; revisions may be read, and listed
		given             string
		want, fails       string
	}{
		"all of it":                         {false, false, false, revision, revision, ""},
		"all of it, and it may be read":     {false, true, false, revision, revision, ""},
		"it may be read, and is not there":  {false, true, false, other, "", "there is no such revision"},
		"one that may not be read":          {false, false, false, other, other, ""},
		"how it begins":                     {false, true, false, revision[:6], "", unseen},
		"how it begins, and it is listed":   {false, false, true, revision[:6], revision, ""},
		"hidden, all of it":                 {true, false, false, revision, revision, ""},
		"hidden, how it begins":             {true, false, false, revision[:6], "", unseen},
		"hidden, how it begins, and listed": {true, false, true, revision[:6], revision, ""},
		"hidden, the current one":           {true, false, false, "current", "", ""},
		"the current one":                   {false, false, false, "current", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			was := testRun("team-a", "was", "u-was")
			was.Spec = v1alpha1.WorkflowRunSpec{WorkflowRef: &v1alpha1.WorkflowReference{Name: "report"}}
			for _, line := range [][]string{{"submit", "report"}, {"rerun", "was"}} {
				s := newStarter(t, w, r, was)
				s.hidden = c.hidden
				if !c.get {
					s.unread = forbiddenRevisions
				}
				if !c.list {
					s.unlisted = forbiddenRevisions
				}
				_, _, err := s.call(append(line, "--revision", c.given)...)
				switch {
				case c.fails != "":
					if err == nil || !strings.Contains(err.Error(), c.fails) || len(s.made) > 0 {
						t.Errorf("%v: %v, made %+v", line, err, s.made)
					}
				case err != nil || len(s.made) != 1 || s.made[0].Spec.WorkflowRef.Revision != c.want:
					t.Errorf("%v: %v, made %+v", line, err, s.made)
				}
			}
		})
	}
}

var forbiddenRevisions = apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "controllerrevisions"}, "", errors.New("no"))

// The operator is of a newer version than the plugin, and the Workflow has a field that this
// version does not know: it hashes to a revision that does not exist.
//
// mutations: a current revision that is found out from what this version knows, and a diff of what
// it knows, make this fail.
func TestTheCurrentRevisionIsThatOfTheStatus(t *testing.T) {
	w, first, one := reportOf(t, "t.one", 1)
	next := first.DeepCopy()
	next.Data.Raw = []byte(strings.Replace(string(first.Data.Raw), `{"parameters"`, `{"novel":true,"parameters"`, 1))
	sum := sha256.Sum256(next.Data.Raw)
	revision := hex.EncodeToString(sum[:])[:20]
	next.Name, next.CreationTimestamp = template.ObjectName("report", revision), metav1.Unix(2, 0)
	w.Generation, w.Status = 2, &v1alpha1.WorkflowStatus{ObservedGeneration: 2, Revision: revision}
	s := newStarter(t, w, first, next)
	if out := s.must("diff", "report"); !strings.HasPrefix(out, "--- report "+one+"\n+++ report "+revision+"\n+novel: true\n") {
		t.Errorf("%q", out)
	}
	s.must("submit", "report", "--revision", "current", "--input", "count=3")
	if got := s.made[0].Spec; got.WorkflowRef.Revision != "" || string(got.Inputs.Raw) != `{"count":3}` {
		t.Errorf("%+v, inputs %s", got.WorkflowRef, got.Inputs.Raw)
	}
	w = w.DeepCopy()
	w.Generation = 3
	s = newStarter(t, w, first, next)
	if _, _, err := s.call("diff", "report", one); err == nil || !strings.Contains(err.Error(), "the operator has not kept its newest version yet") {
		t.Errorf("%v", err)
	}
	if out := s.must("diff", "report", one, revision[:6]); !strings.HasPrefix(out, "--- report "+one+"\n+++ report "+revision+"\n") {
		t.Errorf("%q", out)
	}
}
