// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// maxChanges and maxChange, in bytes, are those of status.rollout.history[].changes.
const (
	maxChanges = 16
	maxChange  = 256
)

// Changes are the fields in which two contents differ, by name: "wait.mode: Poll -> HandOff" of
// runLock, "admission.strategy: Lock -> Atomic". A field that is absent is "-".
func Changes(before, after Content) (changes []string) {
	was, is := map[string]string{}, map[string]string{}
	flatten("", before.RunLock, was)
	flatten("", after.RunLock, is)
	if before.Admission != nil && after.Admission != nil {
		flatten("admission", before.Admission, was)
		flatten("admission", after.Admission, is)
	}
	names := slices.Sorted(maps.Keys(is))
	for name := range was {
		if _, ok := is[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if was[name] == is[name] {
			continue
		}
		text := fmt.Sprintf("%s: %s -> %s", name, orNone(was[name]), orNone(is[name]))
		changes = append(changes, strings.ToValidUTF8(text[:min(len(text), maxChange)], ""))
	}
	return changes[:min(len(changes), maxChanges)]
}

// CandidateChanges are those of the candidate of a rollout: under way, taken back or promoted.
func CandidateChanges(r *v1alpha1.LockPolicyRolloutStatus) []string {
	if r.Candidate == nil {
		return nil
	}
	if changes := Changes(ContentOf(&r.Baseline), ContentOf(r.Candidate)); changes != nil {
		return changes
	}
	for _, h := range r.History { // promoted: it is the baseline now
		if h.Name == r.Candidate.Name {
			return h.Changes
		}
	}
	return nil
}

func orNone(value string) string {
	if value == "" {
		return "-"
	}
	return value
}

// flatten gives the fields of a part of a policy by their paths.
func flatten(prefix string, p any, into map[string]string) {
	raw, _ := json.Marshal(p) //nolint:errchkjson // numbers and strings only
	var tree map[string]any
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	_ = in.Decode(&tree) // it was made a moment ago
	var walk func(path string, value any)
	walk = func(path string, value any) {
		below, ok := value.(map[string]any)
		if !ok {
			into[path] = fmt.Sprint(value)
			return
		}
		for name, v := range below {
			if path != "" {
				name = path + "." + name
			}
			walk(name, v)
		}
	}
	walk(prefix, tree)
}
