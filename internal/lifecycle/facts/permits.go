// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"slices"
	"strings"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Permits are the workload classes and topics that the runs of a namespace may use. The zero
// value permits nothing.
type Permits struct {
	AnyClass, AnyTopic bool
	Classes            []string
	Topics             []string // "a.b", or "a.*" for all that begin with "a."
}

// ResolvePermits reads the annotations of a namespace. Where one is absent everything is permitted,
// or nothing if lists are required.
func ResolvePermits(annotations map[string]string, requireLists bool) Permits {
	classes, hasClasses := annotations[v1alpha1.AnnotationAllowedClasses]
	topics, hasTopics := annotations[v1alpha1.AnnotationAllowedTopics]
	return Permits{
		AnyClass: !hasClasses && !requireLists, Classes: words(classes),
		AnyTopic: !hasTopics && !requireLists, Topics: words(topics),
	}
}

// words are those of a list that is separated by commas.
func words(list string) []string {
	var all []string
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word != "" {
			all = append(all, word)
		}
	}
	return all
}

// Class says whether a workload class is permitted.
func (p Permits) Class(name string) bool { return p.AnyClass || slices.Contains(p.Classes, name) }

// Topic says whether a topic is permitted.
func (p Permits) Topic(name string) bool {
	return p.AnyTopic || slices.ContainsFunc(p.Topics, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, ".*"); ok {
			return strings.HasPrefix(name, prefix+".")
		}
		return pattern == name
	})
}
