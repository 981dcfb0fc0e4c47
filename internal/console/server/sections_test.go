// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/console/access"
	"github.com/syncopate-dev/syncopate/internal/console/cluster"
	"github.com/syncopate-dev/syncopate/internal/console/consoletest"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/console/server"
)

// letterBox has one dead letter, and notes what is redriven.
type letterBox struct{ redriven []uint64 }

func (b *letterBox) List(context.Context, int) ([]facts.Letter, int, error) {
	return []facts.Letter{{Sequence: 7, Reason: "ResultRejected", Cause: "not a result: <script>", Run: "gone-uid", StoredAt: time.Now()}}, 3, nil
}

func (b *letterBox) Redrive(_ context.Context, sequence uint64) error {
	if sequence != 7 {
		return errors.New("there is no such dead letter")
	}
	b.redriven = append(b.redriven, sequence)
	return nil
}

// mutation: UnderWay without its selector counts runs that ended; PoliciesOf that takes both arms
// from one makes the arms equal; Lines unsorted changes who is first.
func TestPagesOfWhatIsShared(t *testing.T) {
	ns := namespace(t)
	must(t, consoletest.Seed(t.Context(), admin, ns, "syncopate-system", time.Now()))
	view, err := cluster.NewView(apiServer.Config, nil, "")
	must(t, err)
	who, box := access.NewLocal(view), &letterBox{}
	c := serve(t, who, server.Options{Base: who.Base(), Namespace: ns, Letters: box})
	text := c.get("/policies")
	wants(t, text, "canary: the edit", "control: as before", "20 percent of the runs have the edit", "61 of 40 contended", "not in force, or not for all of its classes", "42 retries a minute", "syncopate-5d8c7-k4m2p")
	wants(t, text, `<td class="number">210</td>`, `<td class="number">204</td>`, "BusyRunsWorse", "busyRetry.mode: Jittered -&gt; Fixed", "wait.mode: Poll -&gt; HandOff")
	text = c.get("/tenants")
	wants(t, text, "Queue of acme", `<ol><li><a href="`+who.Base()+"/runs/"+ns+`/next-report">`, "a100", "/runs/"+ns+`/report">`, "priority 5")
	lacks(t, text, "/runs/"+ns+"/import")
	text = c.get("/schedules")
	wants(t, text, "nightly", "Europe/Berlin", "3 runs failed in a row", "/runs/"+ns+"/nightly-29578000", "2 overlap")
	text = c.get("/replicas")
	wants(t, text, "syncopate-5d8c7-x2x8b.q6w2m5j7ra3yd4fn", "does what is done once", "partition 63: owned by")
	text = c.get("/dead-letters")
	wants(t, text, "not a result: &lt;script&gt;", "gone-uid", "And 3 more")
	found := tokens.FindStringSubmatch(text)
	if status, text, _ := c.do(http.MethodPost, "/dead-letters/7/redrive", "csrf="+found[1]); status != http.StatusSeeOther || len(box.redriven) != 1 {
		t.Errorf("%d: %s", status, text)
	}
	if status, _, _ := c.do(http.MethodPost, "/dead-letters/7/redrive", ""); status != http.StatusForbidden || len(box.redriven) != 1 {
		t.Errorf("without the form's token: %d", status)
	}
	wants(t, c.get("/runs/"+ns+"/report"), "waits for approval", "4010 of 10000 items", "StepRetry", "policies#batch", "in the canary of 9a1e-2")
	wants(t, c.get("/runs/"+ns+"/train-large"), "lock gpu/a100", "place 1 of 1 for it", "held by "+ns+"/report")
	poor := local(t, user(t, "jane-poor", ns, sees()), ns)
	wants(t, poor.get("/policies"), "You may not see LockPolicies")
	wants(t, poor.get("/tenants"), "You may not see Semaphores", "Only those of "+ns+" are counted")
	wants(t, poor.get("/dead-letters"), "this console has no rights there")
	if status, text, _ := poor.do(http.MethodGet, "/replicas", ""); status != http.StatusForbidden {
		t.Errorf("%d: %s", status, text)
	}
}
