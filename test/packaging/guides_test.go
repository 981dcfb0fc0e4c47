// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// inOneLine is the text of a page, in one line.
func inOneLine(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot, path))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

// Who leaves a field out has its default, and has to know it.
// mutation: another DefaultMaxFailures makes this fail.
func TestTheGuideHasTheDefaultsOfAttempts(t *testing.T) {
	_, section, _ := strings.Cut(inOneLine(t, "docs/workflows.md"), "## When something fails")
	section, _, _ = strings.Cut(section, " ## ")
	for _, want := range []string{
		fmt.Sprintf("without `retry` is tried until its failure number %d", bounds.DefaultMaxFailures),
		fmt.Sprintf("`timeoutSeconds` and `startTimeoutSeconds` are %d", bounds.DefaultTimeout),
		fmt.Sprintf("backoff: {initialMillis: %d, factorPercent: %d, maxMillis: %d, jitterPercent: %d} # the default",
			bounds.DefaultInitialMillis, bounds.DefaultFactorPercent, bounds.DefaultMaxMillis, bounds.DefaultJitterPercent),
	} {
		if !strings.Contains(section, want) {
			t.Errorf("docs/workflows.md does not say %q", want)
		}
	}
}

// namesIn are the objects of a directory of config that belong to the cluster and tell it whom to
// ask, or who may: kubectl apply of another directory leaves them where they are.
func namesIn(t *testing.T, dir string) (all []string) {
	t.Helper()
	for doc := range strings.SplitSeq(string(kustomize(t, dir)), "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(o.Kind, "ClusterRole") || o.Kind == "ValidatingWebhookConfiguration" {
			all = append(all, strings.ToLower(o.Kind)+"/"+o.Metadata.Name)
		}
	}
	return all
}

// A replica that still runs may write its caBundle over that of the new tool, and a webhook that
// nobody serves any more refuses runs.
// mutation: another object of config/webhook/self-managed makes this fail.
func TestWhoLeavesTheOperatorsCertificatesDeletesWhatTheyNeed(t *testing.T) {
	_, section, _ := strings.Cut(inOneLine(t, "docs/admission.md"), "### Certificates")
	section, _, _ = strings.Cut(section, " ### ")
	without := namesIn(t, "config/default")
	left := slices.DeleteFunc(namesIn(t, "config/default-webhook"), func(name string) bool { return slices.Contains(without, name) })
	rights := slices.DeleteFunc(slices.Clone(left), func(name string) bool { return !strings.HasPrefix(name, "clusterrole") })
	if len(rights) == 0 || len(left) == len(rights) {
		t.Fatalf("left %v, of which rights %v", left, rights)
	}
	for _, names := range [][]string{left, rights} {
		slices.SortFunc(names, func(a, b string) int { return strings.Compare(b[:1], a[:1]) }) // the configuration first
		if want := "kubectl delete " + strings.Join(names, " "); !strings.Contains(section, want) {
			t.Errorf("docs/admission.md does not say %q", want)
		}
	}
}
