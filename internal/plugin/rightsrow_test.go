// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// rightsOf are the rights that the table of docs/kubectl-plugin.md gives each command, as "get
// workflowrun".
func rightsOf(t *testing.T) map[string]map[string]bool {
	t.Helper()
	raw, err := os.ReadFile("../../docs/kubectl-plugin.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(raw), "\n## Rights\n")
	// "`get` and `patch` on Leases and ConfigMaps"
	right := regexp.MustCompile("((?:`[a-z]+`(?:, | and )?)+) on ((?:(?:the namespace `kube-system`|controllerrevisions|[A-Z][A-Za-z]+)(?:, | and )?)+)")
	name, verb := regexp.MustCompile("`([a-z -]+)`"), regexp.MustCompile("`([a-z]+)`")
	all := map[string]map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.SplitN(line, "|", 3)
		if len(cells) < 3 {
			continue
		}
		rights := map[string]bool{}
		for _, found := range right.FindAllStringSubmatch(cells[2], -1) {
			for _, v := range verb.FindAllStringSubmatch(found[1], -1) {
				for _, kind := range regexp.MustCompile(", | and ").Split(found[2], -1) {
					kind = strings.TrimPrefix(strings.TrimSuffix(kind, " `kube-system`"), "the ")
					if kind != "" {
						rights[v[1]+" "+singular(strings.ToLower(kind))] = true
					}
				}
			}
		}
		for _, command := range name.FindAllStringSubmatch(cells[1], -1) {
			all[command[1]] = rights
		}
	}
	return all
}

func singular(kind string) string {
	if before, is := strings.CutSuffix(kind, "ies"); is {
		return before + "y"
	}
	return strings.TrimSuffix(kind, "s")
}

// asked is a cluster that notes what it is asked for.
func asked(t *testing.T, rights map[string]bool, objects ...client.Object) *plugin {
	t.Helper()
	note := func(verb string, o any) {
		kind := strings.ToLower(fmt.Sprintf("%T", o))
		rights[verb+" "+strings.TrimSuffix(kind[strings.LastIndexByte(kind, '.')+1:], "list")] = true
	}
	c := fakeCluster(t, objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key types.NamespacedName, o client.Object, opts ...client.GetOption) error {
			note("get", o)
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			note("list", list)
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			note("create", o)
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			note("patch", o)
			return c.Patch(ctx, o, patch, opts...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			note("watch", list)
			return c.Watch(ctx, list, opts...)
		},
	}).Build()
	return &plugin{t: t, cluster: func() (client.Client, string, error) { return c, "team-a", nil }, selected: func(string) {}}
}

// The table says what a role for a command has to have.
//
// mutations: a right that a row leaves out, or that no command asks for.
func TestTheTableOfRightsSaysWhatCommandsAskFor(t *testing.T) {
	table := rightsOf(t)
	objects := append(templateLocks(t), rollingOut("Progressing"))
	s := &v1alpha1.Schedule{}
	s.Namespace, s.Name, s.Spec.Cron = "team-a", "nightly", []string{"0 * * * *"}
	w, r, _ := reportOf(t, "t", 1)
	w.Spec.Template.Steps = append(w.Spec.Template.Steps, v1alpha1.Step{Name: "ask", Approval: &v1alpha1.Approval{}})
	data, revision, err := template.Encode(&w.Spec)
	if err != nil {
		t.Fatal(err)
	}
	r.Name, r.Data.Raw = template.ObjectName("report", revision), data
	ask := testRun("team-a", "ask", "u-ask")
	ask.Spec.WorkflowRef, ask.Spec.Steps = &v1alpha1.WorkflowReference{Name: "report"}, nil
	ask.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Workflow: &v1alpha1.WorkflowRevision{Name: "report", Revision: revision}}
	ask.Status.Steps = []v1alpha1.StepStatus{{Name: "fetch", Phase: v1alpha1.StepDispatched}, {Name: "ask", Phase: v1alpha1.StepWaiting}}
	objects = append(objects, s, r, ask)
	for _, c := range []struct {
		row   string
		lines []string
		only  string // rights that the row has for what is not tried here
	}{
		{"tree", []string{"tree ask"}, ""},
		{"why", []string{"why ask", "why first"}, "get namespace"},
		{"next", []string{"next nightly"}, ""},
		{"locks", []string{"locks"}, ""},
		{"tenants", []string{"tenants"}, ""},
		{"rollout status", []string{"rollout status reports"}, ""},
		{"rollout promote", []string{"rollout promote reports"}, ""},
	} {
		rights := map[string]bool{}
		p := asked(t, rights, objects...)
		for _, line := range c.lines {
			if _, _, err := p.call(strings.Fields(line)...); err != nil {
				t.Logf("%s: %v", line, err)
			}
		}
		want := maps.Clone(table[c.row])
		if c.only != "" {
			delete(want, c.only)
		}
		if got, want := slices.Sorted(maps.Keys(rights)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
			t.Errorf("%s asks for %q, and the table has %q", c.row, got, want)
		}
	}
}

// Who may not read the revision of a Workflow sees less of its steps, and is told why.
//
// mutation: a run with the steps of its status without a word.
func TestStepsThatMayNotBeReadAreToldOf(t *testing.T) {
	run := testRun("team-a", "report-1", "u-1")
	run.Spec.WorkflowRef, run.Spec.Steps = &v1alpha1.WorkflowReference{Name: "report"}, nil
	run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Workflow: &v1alpha1.WorkflowRevision{Name: "report", Revision: "0c1f"}}
	run.Status.Steps = []v1alpha1.StepStatus{{Name: "fetch", Phase: v1alpha1.StepDispatched}}
	for name, c := range map[string]struct {
		answer error
		want   string
	}{
		"forbidden": {forbiddenRevisions, "revision 0c1f of Workflow report: you may not get it (controllerrevisions), and less is known of its steps\n"},
		"gone":      {nil, ""},
	} {
		refuse := interceptor.Funcs{Get: func(ctx context.Context, cl client.WithWatch, key types.NamespacedName, o client.Object, opts ...client.GetOption) error {
			if _, is := o.(*appsv1.ControllerRevision); is && c.answer != nil {
				return c.answer
			}
			return cl.Get(ctx, key, o, opts...)
		}}
		cluster := fakeCluster(t, run.DeepCopy()).WithInterceptorFuncs(refuse).Build()
		p := &plugin{t: t, cluster: func() (client.Client, string, error) { return cluster, "team-a", nil }, selected: func(string) {}}
		for _, command := range []string{"tree", "why"} {
			out, note, err := p.call(command, "report-1")
			if err != nil || note != c.want || !strings.Contains(out, "fetch") {
				t.Errorf("%s, %s: %v, note %q\n%s", command, name, err, note, out)
			}
		}
	}
}
