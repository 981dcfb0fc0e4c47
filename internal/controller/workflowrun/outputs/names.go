// SPDX-License-Identifier: Apache-2.0

package outputs

import (
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Of names the outputs of a run in the object store, as far as its status tells.
func Of(run *v1alpha1.WorkflowRun) []string {
	if run.Status == nil {
		return nil
	}
	var names []string
	for i := range run.Status.Steps {
		s := &run.Status.Steps[i]
		if s.OutputRef != nil {
			names = append(names, s.OutputRef.Name)
		}
		if s.ForEach != nil {
			for k := range s.ForEach.OutputRefs {
				names = append(names, s.ForEach.OutputRefs[k].Name)
			}
		}
	}
	if ref := run.Status.OutputsRef; ref != nil {
		names = append(names, ref.Name)
	}
	return names
}

// missingFrom are the names among those of before that are not in a list.
func missingFrom(list, before []string) (gone []string) {
	for _, name := range before {
		if !slices.Contains(list, name) {
			gone = append(gone, name)
		}
	}
	return gone
}
