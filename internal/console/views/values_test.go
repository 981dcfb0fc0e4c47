// SPDX-License-Identifier: Apache-2.0

package views_test

import (
	"runtime"
	"strings"
	"testing"

	kube "k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/console/views"
)

const mib = 1 << 20

// inputsOf are the inputs of a run as its page has them, and how many bytes that took.
func inputsOf(inputs string) (v views.Value, took uint64) {
	run := &v1alpha1.WorkflowRun{}
	run.Spec.Inputs = &kube.RawExtension{Raw: []byte(inputs)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v = views.RunOf(&facts.Run{Stored: run, Run: run}, now).Inputs
	runtime.ReadMemStats(&after)
	return v, after.TotalAlloc - before.TotalAlloc
}

// mutation: a value that is indented as a whole before it is cut makes this fail: the first is
// 196 MB then, the second 140 MB.
//
//nolint:paralleltest // others would be counted
func TestAValueIsNeverIndentedAsAWhole(t *testing.T) {
	for name, inputs := range map[string]string{
		"deep": strings.Repeat("[", 9900) + strings.Repeat("]", 9900),
		"wide": strings.Repeat("[", 100) + strings.Repeat("0,", 700_000) + "0" + strings.Repeat("]", 100),
		"long": `{"text":"` + strings.Repeat(`\u003c`, 200_000) + `"}`,
	} {
		v, took := inputsOf(inputs)
		if took > 8*mib || !v.Cut || v.Size != int64(len(inputs)) || len(v.Text) > 8<<10 || len(v.Text) < 4<<10 {
			t.Errorf("%s: %d KiB for %d bytes of %d, cut %t", name, took>>10, len(v.Text), v.Size, v.Cut)
		}
	}
}

// mutations: a value without spaces after colons, or without the signs of HTML, makes this fail.
func TestAValueIsInLines(t *testing.T) {
	t.Parallel()
	for inputs, want := range map[string]string{
		`{"a":[1,{}],"b":"x\":,{\u003c\\u003c","c":[ ]}`: "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": \"x\\\":,{<\\\\u003c\",\n  \"c\": []\n}",
		`"text"`:      `"text"`,
		"not, json\n": "not, json\n",
	} {
		if v, _ := inputsOf(inputs); v.Text != want || v.Cut {
			t.Errorf("%s\nis\n%s\nnot\n%s", inputs, v.Text, want)
		}
	}
}
