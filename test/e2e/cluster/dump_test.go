// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
)

var unsafeName = regexp.MustCompile(`[^a-zA-Z0-9]+`)

// dump writes down what the cluster looks like when a spec failed. It fails nothing itself: what
// cannot be had is left out.
func dump(ctx context.Context) {
	text := strings.Trim(unsafeName.ReplaceAllString(CurrentSpecReport().LeafNodeText, "-"), "-")
	dir := filepath.Join(config.artifacts, "failed", text)
	if os.MkdirAll(dir, 0o755) != nil {
		return
	}
	write := func(file string, args ...string) {
		out, err := try(ctx, "", "kubectl", args...)
		if err != nil {
			out += "\n" + err.Error()
		}
		_ = os.WriteFile(filepath.Join(dir, file), []byte(out), 0o600)
	}
	namespaces := []string{operatorNS, natsNS, redisNS, workersNS}
	if current != nil {
		namespaces = append(namespaces, current.namespace)
		write("runs.txt", "-n", current.namespace, "get", "wfr", "-o", "wide")
		write("runs.yaml", "-n", current.namespace, "get", "wfr,stepapprovals", "-o", "yaml")
		write("describe.txt", "-n", current.namespace, "describe", "wfr")
	}
	for _, ns := range namespaces {
		write(ns+"-events.txt", "-n", ns, "get", "events", "--sort-by=.lastTimestamp")
		write(ns+"-objects.txt", "-n", ns, "get", "all,leases,secrets,pvc", "-o", "wide")
		write(ns+"-pods.yaml", "-n", ns, "get", "pods", "-o", "yaml")
	}
	write("cluster.txt", "get", "nodes,ns,crd,lockpolicies,clusterroles,validatingwebhookconfigurations", "-o", "wide")
	write("lockpolicies.yaml", "get", "lockpolicies", "-o", "yaml")
	AddReportEntry("objects and events", dir)
}
