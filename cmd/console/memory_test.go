// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/internal/testenv"
)

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
