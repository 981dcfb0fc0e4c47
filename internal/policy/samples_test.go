// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// The comments of the samples do sums for their readers.
//
// mutation: another time in a sample without its sum makes this fail.
func TestSumsInTheSamples(t *testing.T) {
	files, err := filepath.Glob("../../config/samples/lockpolicy-*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ranges := map[string]string{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(raw), "runLock:") {
			continue // a policy about something else has no sums
		}
		var p v1alpha1.LockPolicy
		if err := yaml.UnmarshalStrict(raw, &p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		lock := Of(&p).RunLock
		ranges[p.Name] = lock.BusyRetry.String()
		ttl, interval, margin := lock.TTL.Milliseconds(), lock.Renewal.Interval.Milliseconds(), lock.Renewal.Margin.Milliseconds()
		text := regexp.MustCompile(` +`).ReplaceAllString(string(raw), " ")
		for _, sum := range []string{
			fmt.Sprintf("%d x 1 %% + %d = %d ms", ttl, margin-ttl/100, margin),
			fmt.Sprintf("%d - %d = %d ms", ttl, margin, lock.Validity().Milliseconds()),
			fmt.Sprintf("2 x %d + %d = %d < %d ms", interval, margin, 2*interval+margin, ttl),
		} {
			if !strings.Contains(text, sum) {
				t.Errorf("%s lacks the sum %q", file, sum)
			}
		}
		if 2*interval+margin >= ttl {
			t.Errorf("%s: the times do not fit", file)
		}
	}
	want := map[string]string{"payments": "140-260ms", "batch": "500-1500ms", "fixed-delay": "500ms"}
	if diff := cmp.Diff(want, ranges); diff != "" {
		t.Errorf("waits for a busy lock (-want +got):\n%s", diff)
	}
}
