// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// signed has the example policies in force in the office's namespace, where jane and eve
// may create runs.
func (o *office) signed() {
	o.t.Helper()
	o.bind("jane", "syncopate-edit")
	for _, object := range documents(o.t, filepath.Join(moduleRoot, "config", "policies", "created-by.yaml")) {
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" {
			if err := unstructured.SetNestedField(object.Object, o.ns, "spec", "matchResources", "namespaceSelector", "matchLabels", "kubernetes.io/metadata.name"); err != nil {
				o.t.Fatal(err)
			}
		}
		o.make(object)
	}
	unsigned, foreign := o.classRun("", "batch", ""), o.classRun("eve", "gpu", "")
	refused := func(by string, run *unstructured.Unstructured) bool {
		return apierrors.IsForbidden(o.as(by).Create(o.t.Context(), run.DeepCopy(), client.DryRunAll))
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if refused("eve", unsigned) && refused("eve", foreign) && !refused("eve", o.classRun("eve", "batch", "")) {
			return
		}
	}
	o.t.Fatal("the policies do not come into force")
}

// classRun is a run of a class with the signature of a user, or without one, and with a run as its
// owner, or without one.
func (o *office) classRun(by, class, owner string) *unstructured.Unstructured {
	o.t.Helper()
	run := parse(o.t, strings.Replace(aRun("  workloadClass: "+class), "namespace: default", "namespace: "+o.ns, 1))
	if by != "" {
		run.SetAnnotations(map[string]string{"syncopate.dev/created-by": by})
	}
	if owner != "" {
		root := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: owner, UID: "u-1"}}
		run.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(root, v1alpha1.GroupVersion.WithKind("WorkflowRun"))})
	}
	return run
}

// The operator creates child runs with the signature of their parent: the spec "runs in the slot of
// its root, at any depth, with its signature" of the run controller.
//
// mutation: taking the operator out of the first policy, or looking at request.userInfo in the
// second, makes this fail.
func TestAPolicyAboutUsersHoldsForChildRuns(t *testing.T) {
	o := newOffice(t)
	o.signed()
	const must, notGPU = "created-by must be the user who creates the run", "may not use class gpu"
	for name, c := range map[string]struct {
		user, by, class, owner string
		refused                string // "": admitted
	}{
		"jane's run":                                {"jane", "jane", "gpu", "", ""},
		"a child run of hers":                       {operatorUser, "jane", "gpu", "root", ""},
		"eve's run":                                 {"eve", "eve", "batch", "", ""},
		"eve's run of that class":                   {"eve", "eve", "gpu", "", notGPU},
		"a child run of hers, of that class":        {operatorUser, "eve", "gpu", "root", notGPU},
		"a child run of an unsigned run":            {operatorUser, "", "gpu", "root", notGPU},
		"eve's run, signed by jane":                 {"eve", "jane", "gpu", "", must},
		"eve's run, unsigned":                       {"eve", "", "batch", "", must},
		"what eve says is a child run of jane's":    {"eve", "jane", "gpu", "root", must},
		"what eve says is a child run, of her own":  {"eve", "eve", "gpu", "root", notGPU},
		"a run of an unsigned class, that eve made": {"eve", "eve", "other", "root", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := o.as(c.user).Create(t.Context(), o.classRun(c.by, c.class, c.owner), client.DryRunAll)
			if (err == nil) != (c.refused == "") || (err != nil && !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("want refused %q: %v", c.refused, err)
			}
		})
	}
}

// mutation: the second rule of the first policy taken out makes this fail.
func TestASignatureStays(t *testing.T) {
	o := newOffice(t)
	o.signed()
	run := o.classRun("eve", "batch", "")
	if err := o.as("eve").Create(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ user, patch, refused string }{
		"another name":          {"eve", `{"metadata":{"annotations":{"syncopate.dev/created-by":"jane"}}}`, "cannot be changed"},
		"none":                  {"eve", `{"metadata":{"annotations":null}}`, "cannot be changed"},
		"by the operator":       {operatorUser, `{"metadata":{"annotations":{"syncopate.dev/created-by":"jane"}}}`, "cannot be changed"},
		"what is no signature":  {"eve", `{"metadata":{"annotations":{"a":"b"}}}`, ""},
		"a cancel by the other": {"jane", `{"spec":{"shutdown":"Cancel"}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := o.as(c.user).Patch(t.Context(), run.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(c.patch)))
			if (err == nil) != (c.refused == "") || (err != nil && !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("want refused %q: %v", c.refused, err)
			}
		})
	}
}

// An administrator suspends what others signed, as before an upgrade, and changes nothing else.
//
// mutations: the policy without the clause about suspend; one that lets other fields go along,
// that takes one away, or that lets anybody resume.
func TestWhoeverMayEditASignedScheduleMaySuspendIt(t *testing.T) {
	o := newOffice(t)
	o.signed()
	s := o.schedule("nightly", "0 0 * * *")
	s.SetAnnotations(map[string]string{"syncopate.dev/created-by": "jane"})
	if err := o.as("jane").Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	const only = "only 'jane'"
	for _, c := range []struct{ user, patch, refused string }{
		{"eve", `{"spec":{"suspend":true,"runTemplate":{"slotInput":"slot"}}}`, only},
		{"eve", `{"spec":{"suspend":true,"stopWhen":"true"}}`, only},
		{"eve", `{"spec":{"suspend":true,"jitterSeconds":null,"timeZone":"Europe/Berlin"}}`, only},
		{"eve", `{"spec":{"overlap":"Allow"}}`, only},
		{"jane", `{"spec":{"pauseAfterFailures":3}}`, ""},
		{"eve", `{"spec":{"suspend":true,"pauseAfterFailures":null}}`, only},
		{"eve", `{"spec":{"suspend":true}}`, ""},
		{"eve", `{"spec":{"suspend":true,"overlap":"Allow"}}`, only}, // it is suspended
		{"eve", `{"spec":{"suspend":false}}`, only},
		{"eve", `{"spec":{"suspend":null}}`, only},
		{"jane", `{"spec":{"suspend":false}}`, ""},
	} {
		err := o.as(c.user).Patch(t.Context(), o.schedule("nightly", ""), client.RawPatch("application/merge-patch+json", []byte(c.patch)))
		if (err == nil) != (c.refused == "") || (err != nil && !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s %s: want refused %q: %v", c.user, c.patch, c.refused, err)
		}
	}
}
