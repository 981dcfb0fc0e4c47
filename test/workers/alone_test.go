// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The file is called a whole worker. Who copies it alone has no traces.py beside it.
//
// mutation: an import of traces whatever the environment says makes this time out.
func TestThePythonWorkerIsWholeByItself(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	text, err := os.ReadFile(filepath.Join(examples, "worker-python", "worker.py"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "worker.py"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	url := start(t).URL()
	o := operateAt(t, Config{URL: url, AckWait: time.Hour})
	id := newJob("alone")
	if _, err := o.dispatch(t.Context(), id, quick); err != nil {
		t.Fatal(err)
	}
	p := runs(t, dir, []string{"NATS_URL=" + url, "OTEL_EXPORTER_OTLP_ENDPOINT="}, "python3", "-B", "worker.py", DefaultTopic)
	answered(t, o, id)
	ends(t, p)
}
