// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func (v *viewer) deadLetters() {
	c := v.condition(v1alpha1.ConditionDeadLettered)
	if c == nil || c.Status != metav1.ConditionTrue {
		return
	}
	text := v.means(c)
	if _, known := meaningOf(c.Type, c.Reason); known {
		text = join(text, c.Message)
	}
	v.add(Fact{About: "dead letters", Text: text, Since: secondTime(&c.LastTransitionTime)})
}

func (v *viewer) help() {
	switch len(v.asked) {
	case 0:
	case 1:
		v.advice = append(v.advice, "to decide: kubectl syncopate approve NAME "+v.asked[0].spec.Name+", or reject instead of approve")
	default:
		v.advice = append(v.advice, "to decide: kubectl syncopate approve NAME STEP, or reject instead of approve")
	}
	for _, text := range v.advice {
		v.add(Fact{About: "help", Text: strings.ReplaceAll(text, "NAME", v.run.Name+" -n "+v.run.Namespace)})
	}
}
