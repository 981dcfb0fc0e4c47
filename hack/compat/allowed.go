// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// allowance is a change that was decided on.
type allowance struct {
	Change string `json:"change"` // a line that this command prints
	Reason string `json:"reason"`
}

// without leaves out of the changes what the file allows. An entry that allows nothing is an
// error: it would let the same change pass in the release after this.
func without(changes []string, file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var allowed []allowance
	if err := yaml.UnmarshalStrict(text, &allowed); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	left := slices.Clone(changes)
	for _, a := range allowed {
		if strings.TrimSpace(a.Reason) == "" {
			return nil, fmt.Errorf("%s: %q has no reason", file, a.Change)
		}
		i := slices.Index(left, a.Change)
		if i < 0 {
			return nil, fmt.Errorf("%s: %q is no change since the last release, or is listed twice: remove it", file, a.Change)
		}
		left = slices.Delete(left, i, i+1)
	}
	return left, nil
}
