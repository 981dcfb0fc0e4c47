// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

const planted = "PLANTED"

// shownFields are the fields of runs that a bundle shows, by their JSON names. All others are
// planted.
var shownFields = map[string]bool{
	"name": true, "namespace": true, "uid": true, "resourceVersion": true, "workloadClass": true, "topic": true, "dependsOn": true, "phase": true,
	"reason": true, "type": true, "status": true, "policy": true,
}

// plant fills all texts of an object that are not shown.
func plant(v reflect.Value, name string, depth int) {
	if depth == 0 {
		return
	}
	switch v.Kind() { //nolint:exhaustive // objects have no other kinds of values with texts
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		plant(v.Elem(), name, depth)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() && v.Type() != reflect.TypeFor[metav1.Time]() {
				tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
				plant(v.Field(i), tag, depth-1)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(`"` + planted + `"`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		plant(v.Index(0), name, depth-1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		plant(key, "", depth-1)
		plant(value, "", depth-1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		if !shownFields[name] {
			v.SetString(planted)
		}
	}
}

// mutation: a field of RunOf that is a user's or a worker's text (a message, an input, a label, a
// code of a worker) makes this fail: it was tried with the message of a condition, and with codeOf.
func TestRunOf_ShowsNothingThatUsersOrWorkersWrote(t *testing.T) {
	run := &v1alpha1.WorkflowRun{}
	plant(reflect.ValueOf(run).Elem(), "", 9)
	run.Name, run.Namespace, run.UID = "report", "team-a", types.UID("u")
	run.Spec.WorkflowRef = nil
	if all, err := json.Marshal(run); err != nil || strings.Count(string(all), planted) < 50 {
		t.Fatalf("too little is planted: %v %s", err, all)
	}
	got, err := json.Marshal(RunOf(run))
	if err != nil || strings.Contains(string(got), planted) || !strings.Contains(string(got), "(of a worker)") {
		t.Errorf("%v: %s", err, got)
	}
}

// mutation: RunOf that shows the steps of spec only makes this fail.
func TestRunOf_HasTheStepsOfARunThatFollowsAWorkflow(t *testing.T) {
	run := &v1alpha1.WorkflowRun{}
	run.Spec.WorkflowRef = &v1alpha1.WorkflowReference{Name: "report"}
	run.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{
		{Name: "fetch", Phase: v1alpha1.StepFailed, Attempt: 3, Failures: 3, Error: &v1alpha1.StepError{Code: "Timeout", Message: planted}},
		{Name: "all", Phase: v1alpha1.StepRunning, ForEach: &v1alpha1.ForEachStatus{}},
	}}
	want := []Step{{Name: "fetch", Phase: "Failed", Attempt: 3, Failures: 3, Code: "Timeout"}, {Name: "all", Phase: "Running", ForEach: true}}
	if got := RunOf(run); !reflect.DeepEqual(got.Steps, want) {
		t.Errorf("%+v", got.Steps)
	}
	run.Spec.WorkflowRef, run.Spec.Steps = nil, []v1alpha1.Step{{Name: "fetch"}, {Name: "all", ForEach: &v1alpha1.ForEach{}}}
	if got := RunOf(run); !reflect.DeepEqual(got.Steps, want) {
		t.Errorf("with steps of its own: %+v", got.Steps)
	}
}

// mutation: PolicyOf that reads the conditions of no status makes this fail.
func TestPolicyOf_BeforeAnOperatorHasSeenIt(t *testing.T) {
	p := &v1alpha1.LockPolicy{}
	if got := PolicyOf(p); len(got.Conditions) > 0 {
		t.Errorf("%+v", got)
	}
	p.Status = &v1alpha1.LockPolicyStatus{Conditions: []metav1.Condition{{Type: "Ready"}}}
	if got := PolicyOf(p); len(got.Conditions) != 1 || got.Conditions[0].Type != "Ready" {
		t.Errorf("%+v", got)
	}
}

// mutation: argsOf that shows all values makes this fail.
func TestDeploymentOf_ShowsNoValueThatMayBeSecret(t *testing.T) {
	d := &appsv1.Deployment{}
	d.Annotations = map[string]string{"a": planted}
	d.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "manager", Args: []string{"--nats-url=nats://u:" + planted + "@nats", "--nats-replicas=3", "--redis-addrs", planted},
		Env: []corev1.EnvVar{{Name: "NATS_PASSWORD", Value: planted}}, Command: []string{planted},
	}}
	got, err := json.Marshal(DeploymentOf(d))
	if err != nil || strings.Contains(string(got), planted) || !strings.Contains(string(got), "--nats-replicas=3") || !strings.Contains(string(got), "NATS_PASSWORD") {
		t.Errorf("%v: %s", err, got)
	}
}

func unpack(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for archive := tar.NewReader(z); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = string(data)
	}
}

// mutations: Add or AddList without its bounds, or Table without notes, makes this fail.
func TestWriter_HasBoundsAndSaysWhatIsMissing(t *testing.T) {
	w := &Writer{}
	w.Add("small.json", "something small", map[string]int{"n": 1})
	AddList(w, "list.json", "a list that is large", slices.Repeat([]string{strings.Repeat("x", 1000)}, 2000))
	AddList(w, "none-yet.json", "a list of none", []string{})
	AddList(w, "never-list.json", "what is no JSON", []any{func() {}})
	for range 12 {
		w.Add("large.txt", "something large", strings.Repeat("0123456789abcdef", maxFile/8))
	}
	AddList(w, "late.json", "a list without room", []string{"x"})
	w.Miss("none.json", "what is not there", errors.New("no right"))
	w.Add("never.json", "what is no JSON", func() {})
	var out bytes.Buffer
	if err := w.Write(&out, time.Unix(1000, 0)); err != nil {
		t.Fatal(err)
	}
	all := unpack(t, &out)
	contents, sum := all["support-bundle/"+Contents], 0
	for _, f := range w.files {
		sum += len(f.data)
	}
	if sum > maxAll || len(all["support-bundle/large.txt"]) > maxFile || !strings.Contains(all["support-bundle/small.json"], `"n": 1`) {
		t.Errorf("%d bytes", sum)
	}
	var list, none []string
	if err := errors.Join(json.Unmarshal([]byte(all["support-bundle/list.json"]), &list), json.Unmarshal([]byte(all["support-bundle/none-yet.json"]), &none)); err != nil || len(list) < 900 || none == nil {
		t.Errorf("%d in a list that is large: %v", len(list), err)
	}
	if text := all["support-bundle/late.json"]; text != "" {
		t.Errorf("without room: %s", text)
	}
	for _, want := range []string{
		"something small", "cut: the first 1048576 of 2097155 bytes", "missing: no right", "never.json", "never-list.json",
		fmt.Sprintf("cut: the first %d of 2000", len(list)), "missing: there is no room left",
	} {
		if !strings.Contains(contents, want) {
			t.Errorf("no %q in\n%s", want, contents)
		}
	}
	if _, there := all["support-bundle/none.json"]; there {
		t.Error("a file that is missing is there")
	}
}
