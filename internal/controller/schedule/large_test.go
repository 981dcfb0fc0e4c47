// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

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
				w.funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					err := c.Get(ctx, key, o, opts...)
					if s, is := o.(*v1alpha1.Schedule); is && err == nil {
						schedule.Slim(s)
					}
					return err
				}
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
