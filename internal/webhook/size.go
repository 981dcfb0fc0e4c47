// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
)

// maxMetadataBytes bounds labels, finalizers and owner references of a run together. The API server
// has a bound for annotations alone, of 256 KiB.
const maxMetadataBytes = 64 << 10

// tooLarge says why a run is larger than the operator takes: each replica has all runs in memory,
// also those that end as InvalidSpec. Empty: it is not.
func tooLarge(run *v1alpha1.WorkflowRun) string {
	if n := metadataBytes(&run.ObjectMeta); n > maxMetadataBytes {
		return fmt.Sprintf("metadata: %d bytes of labels, finalizers and owner references, more than %d", n, maxMetadataBytes)
	}
	p := dag.Of(run)
	return dag.TooLarge(run, &p)
}

// metadataBytes is the size of what has no bound of its own in metadata.
func metadataBytes(m *metav1.ObjectMeta) (n int) {
	for name, value := range m.Labels {
		n += len(name) + len(value)
	}
	for _, f := range m.Finalizers {
		n += len(f)
	}
	for _, o := range m.OwnerReferences {
		n += len(o.APIVersion) + len(o.Kind) + len(o.Name) + len(o.UID)
	}
	return n
}
