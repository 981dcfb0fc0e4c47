// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// mutation: the whole limit as the goal makes this fail.
func TestTheCollectorAimsAtAPartOfTheContainersLimit(t *testing.T) {
	for name, c := range map[string]struct {
		env   map[string]string
		want  int64
		fails bool
	}{
		"a part of the limit":                {map[string]string{"MEMORY_LIMIT": "536870912"}, 402653184, false},
		"no limit is known":                  {nil, 0, false},
		"what Go reads itself goes before":   {map[string]string{"MEMORY_LIMIT": "536870912", "GOMEMLIMIT": "300MiB"}, 0, false},
		"a limit that is no number of bytes": {map[string]string{"MEMORY_LIMIT": "512Mi"}, 0, true},
		"a limit below zero":                 {map[string]string{"MEMORY_LIMIT": "-1"}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := memoryGoal(func(key string) string { return c.env[key] })
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("%d, %v, want %d", got, err, c.want)
			}
		})
	}
}

// mutation: config/console/deployment.yaml without MEMORY_LIMIT makes this fail. That the chart is
// the same another test says.
func TestTheDeploymentTellsItsLimit(t *testing.T) {
	text, err := os.ReadFile(testenv.Root("config", "console", "deployment.yaml"))
	must(t, err)
	d := &appsv1.Deployment{}
	must(t, yaml.Unmarshal(text, d)) // the first of its documents
	console := &d.Spec.Template.Spec.Containers[0]
	for _, e := range console.Env {
		if e.Name == "MEMORY_LIMIT" && e.ValueFrom.ResourceFieldRef.Resource == "limits.memory" && e.ValueFrom.ResourceFieldRef.ContainerName == console.Name {
			return
		}
	}
	t.Errorf("the console does not know its limit: %+v", console.Env)
}
