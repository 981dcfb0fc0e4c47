// SPDX-License-Identifier: Apache-2.0

package template

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// RevisionDigits is the length of a revision in hexadecimal digits: 80 bits of SHA-256.
const RevisionDigits = 20

// Content is one version of a Workflow. It is never changed.
type Content struct {
	Workflow string // the name
	Revision string

	parameters []v1alpha1.Parameter
	template   v1alpha1.WorkflowTemplate
}

// stored is a version as it is kept.
type stored struct {
	Parameters []v1alpha1.Parameter      `json:"parameters,omitempty"`
	Template   v1alpha1.WorkflowTemplate `json:"template"`
}

// Encode is what is kept of a version of a Workflow, and its revision.
func Encode(spec *v1alpha1.WorkflowSpec) (data []byte, revision string, err error) {
	raw, err := json.Marshal(stored{Parameters: spec.Parameters, Template: writable(spec.Template)})
	if err != nil {
		return nil, "", fmt.Errorf("encode: %w", err)
	}
	if data, err = bounds.Canonical(raw, nil); err != nil {
		return nil, "", err
	}
	return data, hash(data), nil
}

// noTime stands for a time that cannot be written. It is wrong by bounds.YearProblem, too, so who
// validates the steps says what is wrong: without a revision nobody could.
var noTime = metav1.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC)

// writable is a template with times that Decode can read.
func writable(t v1alpha1.WorkflowTemplate) v1alpha1.WorkflowTemplate {
	t.Steps, t.Finally = withWritable(t.Steps), withWritable(t.Finally)
	return t
}

func withWritable(steps []v1alpha1.Step) []v1alpha1.Step {
	is := steps
	for i := range steps {
		d := steps[i].Delay
		if d == nil || d.Until == nil {
			continue
		}
		if bounds.Writable(d.Until.Time).Equal(d.Until.Time) {
			continue
		}
		if &is[0] == &steps[0] {
			is = slices.Clone(steps)
		}
		is[i].Delay = &v1alpha1.Delay{Seconds: d.Seconds, Until: noTime.DeepCopy()}
	}
	return is
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])[:RevisionDigits]
}

// Decode reads a version of a Workflow. Its error says that it is not the content of the revision.
func Decode(workflow, revision string, data []byte) (*Content, error) {
	canonical, err := verified(workflow, revision, data)
	if err != nil {
		return nil, err
	}
	var s stored
	if err := json.Unmarshal(canonical, &s); err != nil {
		return nil, fmt.Errorf("decode revision %s of Workflow %s: %w", revision, workflow, err)
	}
	return &Content{Workflow: workflow, Revision: revision, parameters: s.Parameters, template: s.Template}, nil
}

// Verify says by its error that something is not the content of a revision. It does less than
// Decode.
func Verify(workflow, revision string, data []byte) error {
	_, err := verified(workflow, revision, data)
	return err
}

// verified is the content of a revision in its canonical form.
func verified(workflow, revision string, data []byte) (canonical []byte, err error) {
	if canonical, err = bounds.Canonical(data, nil); err != nil {
		return nil, err
	}
	if is := hash(canonical); is != revision {
		return nil, fmt.Errorf("the content of revision %s of Workflow %s has the hash %s", revision, workflow, is)
	}
	return canonical, nil
}

// Unnamed is a Workflow as it is now, without its revision, which takes longer to find: enough to
// check inputs.
func Unnamed(w *v1alpha1.Workflow) *Content {
	return &Content{Workflow: w.Name, parameters: w.Spec.Parameters, template: w.Spec.Template}
}

// ObjectName is the name of the object that has a revision.
func ObjectName(workflow, revision string) string { return workflow + "-" + revision }

// IsRevision says whether a text can name a revision.
func IsRevision(text string) bool {
	return len(text) == RevisionDigits && strings.Trim(text, "0123456789abcdef") == ""
}

// Parameters are those of the version.
func (c *Content) Parameters() []v1alpha1.Parameter { return c.parameters }

// InputNames are the inputs that a run may have; never nil: without parameters it has none.
func (c *Content) InputNames() []string {
	names := []string{}
	for i := range c.parameters {
		names = append(names, c.parameters[i].Name)
	}
	return names
}

// Effective is a run as the core sees it: with the steps of the template, and the inputs that
// Inputs has made. The run is not changed, and shares what it has with the result.
func (c *Content) Effective(run *v1alpha1.WorkflowRun, inputs []byte) *v1alpha1.WorkflowRun {
	next, t := *run, &c.template
	next.Spec.Steps, next.Spec.Finally, next.Spec.Outputs, next.Spec.Locks = t.Steps, t.Finally, t.Outputs, t.Locks
	next.Spec.ActiveDeadlineSeconds = t.ActiveDeadlineSeconds
	next.Spec.MaxParallelSteps = bounds.PositiveOr(t.MaxParallelSteps, bounds.DefaultParallel)
	next.Spec.FinallyTimeoutSeconds = bounds.PositiveOr(t.FinallyTimeoutSeconds, bounds.DefaultFinallyTimeout)
	next.Spec.Inputs = rawOf(inputs)
	return &next
}
