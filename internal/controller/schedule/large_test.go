// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// slimmed reads schedules as the cache has them.
func slimmed(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := c.Get(ctx, key, o, opts...)
	if s, is := o.(*v1alpha1.Schedule); is && err == nil {
		schedule.Slim(s)
	}
	return err
}

// A template that is too large has no runs, and the schedule says so, also where the cache has only
// that in its place. What is stored stays as it is.
//
// mutations: RunSpec that takes a template of any size, and a Slim that leaves nothing in its
// place, or a text without why, make this fail.
func TestATemplateThatIsTooLargeIsRefused(t *testing.T) {
	for name, slim := range map[string]bool{"as it is stored": false, "as the cache has it": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if slim {
				w.funcs.Get = slimmed
			}
			s := w.schedule("large", func(s *v1alpha1.Schedule) {
				s.Labels = map[string]string{"team": "a"}
				s.Spec.RunTemplate.Spec.Raw = []byte(strings.Replace(steps, "{", `{"inputs":{"pad":"`+strings.Repeat("x", bounds.MaxSpecBytes)+`"},`, 1))
			})
			r := w.operator()
			w.settle(r, s)
			w.at(1, 0)
			w.settle(r, s)
			got := w.stored(s)
			c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionStalled)
			if c == nil || c.Reason != v1alpha1.ReasonTemplateRefused || !strings.Contains(c.Message, "are more than 524288") {
				t.Errorf("condition: %+v", c)
			}
			if n := len(w.runs()); n > 0 {
				t.Errorf("%d runs", n)
			}
			if got.Labels["team"] != "a" || len(got.Spec.RunTemplate.Spec.Raw) < bounds.MaxSpecBytes {
				t.Errorf("stored: labels %v, a spec of %d bytes", got.Labels, len(got.Spec.RunTemplate.Spec.Raw))
			}
		})
	}
}

// Who applies has the excess taken out of a template, and the schedule starts runs again. The
// operator's write of status made the API server forget who wrote which field, so that what was no
// longer in the file stayed in the schedule.
//
// mutation: writeStatus that sends what the cache has in the place of the template makes this fail.
func TestWhatIsTooMuchOfATemplateIsTakenOutByAnApply(t *testing.T) {
	w := newWorld(t)
	w.funcs.Get = slimmed
	apply := func(template map[string]any) *v1alpha1.Schedule {
		t.Helper()
		o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"cron": []any{"0 * * * *"}, "runTemplate": map[string]any{"spec": template},
		}}}
		o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Schedule"))
		o.SetNamespace(w.ns)
		o.SetName("large")
		o.SetLabels(map[string]string{"team": "a"})
		if err := w.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl")); err != nil {
			t.Fatal(err)
		}
		return w.stored(&v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "large"}})
	}
	var template map[string]any
	if err := json.Unmarshal([]byte(steps), &template); err != nil {
		t.Fatal(err)
	}
	template["inputs"] = map[string]any{"pad": strings.Repeat("x", bounds.MaxSpecBytes)}
	s := apply(template)
	w.hour = s.CreationTimestamp.Truncate(time.Hour)
	r := w.operator()
	w.settle(r, s)
	got := w.stored(s)
	if c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionStalled); c == nil || c.Reason != v1alpha1.ReasonTemplateRefused {
		t.Errorf("condition: %+v", c)
	}
	text, err := json.Marshal(got.ManagedFields)
	if err != nil || !strings.Contains(string(text), `"f:pad"`) || !strings.Contains(string(text), `"f:team"`) {
		t.Errorf("managedFields: %s, %v", text, err)
	}
	delete(template, "inputs")
	if s = apply(template); strings.Contains(string(s.Spec.RunTemplate.Spec.Raw), "inputs") {
		t.Errorf("after an apply without it: %d bytes", len(s.Spec.RunTemplate.Spec.Raw))
	}
	w.settle(r, s)
	w.at(1, 0)
	w.settle(r, s)
	if n := len(w.runs()); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// Who made a schedule is written on its runs, and each replica has it in memory: it counts as the
// annotations of the runs do. An edit of it alone, which makes no other generation, ends a refusal.
//
// mutations: Slim that keeps it whatever its size, and a look that is not made again after such an
// edit, make this fail.
func TestWhoMadeAScheduleCountsWithItsTemplate(t *testing.T) {
	w := newWorld(t)
	w.funcs.Get = slimmed
	s := w.schedule("signed", func(s *v1alpha1.Schedule) {
		s.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: strings.Repeat("e", 250<<10)}
		var all []string
		for i := range 20 {
			all = append(all, fmt.Sprintf(`{"name":"s%d","job":{"topic":"reports.daily","input":{"pad":%q}}}`, i, strings.Repeat("x", 15<<10)))
		}
		s.Spec.RunTemplate.Spec.Raw = []byte(`{"steps":[` + strings.Join(all, ",") + `]}`)
	})
	if small, err := json.Marshal(kept(s)); err != nil || len(small) > 2<<10 {
		t.Errorf("%d bytes are kept, %v", len(small), err)
	}
	r := w.operator()
	w.settle(r, s)
	if c := meta.FindStatusCondition(w.stored(s).Status.Conditions, v1alpha1.ConditionStalled); c == nil || c.Reason != v1alpha1.ReasonTemplateRefused {
		t.Errorf("condition: %+v", c)
	}
	w.edit(s, func(s *v1alpha1.Schedule) { s.Annotations[v1alpha1.AnnotationCreatedBy] = "eve" })
	w.settle(r, s)
	w.at(1, 0)
	w.settle(r, s)
	by := ""
	for _, run := range w.runs() {
		by += run.Annotations[v1alpha1.AnnotationCreatedBy] + " "
	}
	if by != "eve " {
		t.Errorf("runs are of %q: %+v", by, w.stored(s).Status)
	}
}

// kept is what replicas have of a schedule in memory.
func kept(s *v1alpha1.Schedule) *v1alpha1.Schedule {
	s = s.DeepCopy()
	schedule.Slim(s)
	return s
}
