// SPDX-License-Identifier: Apache-2.0

package liveness

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// mutations: Collect that counts topics which nobody watches, counts runs, or leaves out states
// that no topic has.
func TestTopicsThatRunsWaitForAreCountedByState(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.script(func(topic string) (Workers, error) {
			switch topic {
			case "broken", "broken.too":
				return nobody(), nil
			case "unheard":
				return Workers{}, errAway
			default:
				return pulls(), nil
			}
		})
		w.watcher.Watch("a/1", "broken", "well", "unheard")
		w.watcher.Watch("a/2", "broken", "broken.too")
		w.watcher.Watch("a/3", "left")
		w.until(10 * time.Second)
		w.watcher.Forget("a/3")
		is := func(pulling, nobodyPulls, unknown string) {
			t.Helper()
			want := `# HELP syncopate_topics_waiting Topics that runs of this replica wait for, by what is known of their workers.
# TYPE syncopate_topics_waiting gauge
syncopate_topics_waiting{state="Full"} 0
syncopate_topics_waiting{state="NoConsumer"} 0
syncopate_topics_waiting{state="NobodyPulls"} ` + nobodyPulls + `
syncopate_topics_waiting{state="Pulling"} ` + pulling + `
syncopate_topics_waiting{state="Stuck"} 0
syncopate_topics_waiting{state="Unknown"} ` + unknown + `
`
			if err := testutil.CollectAndCompare(w.watcher.Topics(), strings.NewReader(want)); err != nil {
				t.Error(err)
			}
		}
		is("1", "2", "1")
		w.watcher.Forget("a/2")
		is("1", "1", "1")
	})
}
