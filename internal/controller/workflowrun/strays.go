package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
)

const (
	// strayTick is how often parked results look for their run in the directory.
	strayTick = time.Second
	// strayPatience is how long the cache may lag before the API server is asked.
	strayPatience = 3 * time.Second
	// censusPause is the least time between two live lists.
	censusPause = 5 * time.Second
	// strayLimit and strayBytes bound the parked results; more go back to NATS. A run has a share of them: whose runs they are is not
	// known, and somebody may send results of runs that are gone for as long as he wants.
	strayLimit = 1000
	strayBytes = 16 << 20
	// censusPage is the number of runs per page of a live list.
	censusPage = 500
)

var errUnknownRun = errors.New("the run is not known yet")

// strays holds results whose run is not in the cache. The cache may lag, so only a live list that began after the result came
// may say that the run does not exist; then the result is stale and acked.
type strays struct {
	in         *intake
	parked     *inbox
	lastCensus time.Time
}

func newStrays(in *intake) *strays {
	return &strays{in: in, parked: newInbox(strayLimit, strayBytes)}
}

func (s *strays) park(ctx context.Context, l *letter) {
	if !s.parked.put("", types.UID(l.fact.ID.RunUID), l) {
		s.in.refuse(ctx, l, max(censusPause, s.parked.comeBack("", l, s.in.clock.Now())), errUnknownRun)
	}
}

// Start looks after parked results until ctx ends. It runs where runs are driven: on the leader.
func (s *strays) Start(ctx context.Context) error {
	tick := s.in.clock.NewTicker(strayTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
			if err := s.sort(ctx); err != nil {
				log.FromContext(ctx).Error(err, "Results of unknown runs keep waiting")
			}
		}
	}
}

// sort delivers the results whose run is known by now, and acks those whose run is gone.
func (s *strays) sort(ctx context.Context) error {
	now := s.in.clock.Now()
	old := s.deliverKnown(ctx, now)
	if old == 0 || now.Sub(s.lastCensus) < censusPause {
		return nil
	}
	s.lastCensus = now
	existing, err := s.in.census(ctx)
	if err != nil {
		return err
	}
	for _, uid := range s.parked.runs() {
		if _, exists := existing[uid]; exists {
			continue // the cache will know it
		}
		s.drop(ctx, uid, now)
	}
	return nil
}

// drop acks the results of a run that is gone. What came after the list began, which says nothing about its run, stays.
func (s *strays) drop(ctx context.Context, uid types.UID, began time.Time) {
	gone := slices.DeleteFunc(s.parked.waiting(uid), func(l *letter) bool { return l.since.After(began) })
	s.parked.remove(uid, gone)
	for _, l := range gone {
		s.in.settle(ctx, l, rejection(l), bus.OutcomeStale)
	}
}

// deliverKnown returns how many of the results left have waited long enough to ask the API server.
func (s *strays) deliverKnown(ctx context.Context, now time.Time) (old int) {
	for _, uid := range s.parked.runs() {
		if key, ok := s.in.directory.find(uid); ok {
			for _, l := range s.parked.takeAll(uid) {
				s.in.deliver(ctx, key, l)
			}
			continue
		}
		for _, l := range s.parked.waiting(uid) {
			if now.Sub(l.since) >= strayPatience {
				old++
			}
		}
	}
	return old
}

// census lists all runs live: UID to name.
func (r *Reconciler) census(ctx context.Context) (map[types.UID]types.NamespacedName, error) {
	all := map[types.UID]types.NamespacedName{}
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkflowRunList"))
	for {
		if err := r.live.List(ctx, page, client.Limit(censusPage), client.Continue(page.Continue)); err != nil {
			return nil, fmt.Errorf("list runs live: %w", err)
		}
		for i := range page.Items {
			all[page.Items[i].UID] = client.ObjectKeyFromObject(&page.Items[i])
		}
		if page.Continue == "" {
			return all, nil
		}
	}
}
