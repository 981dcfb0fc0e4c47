// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Fault is what verify may do to an installation while runs are under way.
type Fault string

// The faults.
const (
	RestartWorker   Fault = "restart-worker"   // its own workers, in the middle of their jobs
	RestartOperator Fault = "restart-operator" // one pod of the operator is deleted
	FlushRedis      Fault = "flush-redis"      // all of Redis' data is gone
)

// Done is a fault that happened.
type Done struct {
	Fault Fault         `json:"fault"`
	What  string        `json:"what"`  // which worker, which pod
	Stall time.Duration `json:"stall"` // the longest time between two results after it was over, or to the end if runs have not ended

	over time.Time
}

// operatorLabels are those of the operator's pods, in kustomize and in the chart.
var operatorLabels = client.MatchingLabels{"app.kubernetes.io/name": "syncopate", "app.kubernetes.io/component": "manager"}

// notDone begins what is said of a fault that could not be made.
const notDone = "did not happen: "

// happened says whether a fault was made.
func (d Done) happened() bool { return !strings.HasPrefix(d.What, notDone) }

// maxKeys is how many keys of Redis are looked at before it is flushed.
const maxKeys = 100_000

// faultsPossible refuses before anything is made what could do harm to others.
func (t *trial) faultsPossible(ctx context.Context) error {
	for _, f := range t.Faults {
		var err error
		switch f {
		case RestartWorker:
		case RestartOperator:
			_, err = t.operators(ctx)
		case FlushRedis:
			err = onlyOurs(ctx, t.Redis)
		default:
			err = errors.New("it is not known")
		}
		if err != nil {
			return fmt.Errorf("fault %s: %w", f, err)
		}
	}
	return nil
}

// faults has them happen one after the other, each when some more results are there.
func (t *trial) faults(ctx context.Context) {
	for i, f := range t.Faults {
		part := t.size.Results() * (i + 1) / (len(t.Faults) + 2)
		if err := t.await(ctx, func() (bool, error) { return t.ledger.Applied() >= part, nil }); err != nil || ctx.Err() != nil {
			for _, missed := range t.Faults[i:] {
				t.done = append(t.done, Done{Fault: missed, What: notDone + "the time was over"})
			}
			return
		}
		t.Say("fault: %s", f)
		d := Done{Fault: f}
		var err error
		switch f {
		case RestartWorker:
			d.What = "all workers, in the middle of their jobs"
			t.fire()
			t.clerks.Close()
			t.hire(ctx)
		case RestartOperator:
			d.What, err = t.restartOperator(ctx)
		case FlushRedis:
			d.What = "all keys"
			if err = onlyOurs(ctx, t.Redis); err == nil { // others may have come since
				err = flush(ctx, t.Redis)
			}
		}
		if err != nil {
			d.What = notDone + err.Error()
		}
		d.over = t.Clock.Now()
		t.done = append(t.done, d)
	}
}

// operators are the operator's pods that are ready.
func (t *trial) operators(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := t.Kube.List(ctx, &list, client.InNamespace(t.Operator), operatorLabels); err != nil {
		return nil, fmt.Errorf("read the operator's pods: %w", err)
	}
	var ready []corev1.Pod
	for i := range list.Items {
		for _, c := range list.Items[i].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && list.Items[i].DeletionTimestamp == nil {
				ready = append(ready, list.Items[i])
			}
		}
	}
	if len(ready) == 0 {
		return nil, fmt.Errorf("no pod of the operator is ready in namespace %s (--operator-namespace)", t.Operator)
	}
	return ready, nil
}

// restartOperator deletes a pod and waits until as many are ready as before. A pod that is killed
// rather than stopped is what a lost node looks like: it gets no time to say good-bye.
func (t *trial) restartOperator(ctx context.Context) (string, error) {
	before, err := t.operators(ctx)
	if err != nil {
		return "", err
	}
	pod := before[rand.New(rand.NewPCG(t.Seed, 1)).IntN(len(before))]
	if err := t.Kube.Delete(ctx, &pod, client.GracePeriodSeconds(0)); err != nil {
		return "", fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	err = t.await(ctx, func() (bool, error) {
		now, err := t.operators(ctx)
		if err != nil {
			return false, nil //nolint:nilerr // asked again until the time is over
		}
		for i := range now {
			if now[i].UID == pod.UID {
				return false, nil
			}
		}
		return len(now) >= len(before), nil
	})
	return "pod " + pod.Name, err
}

// onlyOurs refuses a Redis in which others have data.
func onlyOurs(ctx context.Context, r redis.UniversalClient) error {
	if r == nil {
		return errors.New("no Redis is given")
	}
	return eachMaster(ctx, r, func(ctx context.Context, c redis.Cmdable) error {
		seen := 0
		for cursor := uint64(0); ; {
			keys, next, err := c.Scan(ctx, cursor, "*", 1000).Result()
			if err != nil {
				return fmt.Errorf("look at the keys of Redis: %w", err)
			}
			for _, k := range keys {
				if !strings.HasPrefix(k, "{run:") && !strings.HasPrefix(k, "{adm") {
					return fmt.Errorf("data of others is in Redis, say key %.80q", k)
				}
			}
			if seen += len(keys); seen > maxKeys {
				return fmt.Errorf("more than %d keys are in Redis: too many to look at each", maxKeys)
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
}

func flush(ctx context.Context, r redis.UniversalClient) error {
	return eachMaster(ctx, r, func(ctx context.Context, c redis.Cmdable) error { return c.FlushDB(ctx).Err() })
}

func eachMaster(ctx context.Context, r redis.UniversalClient, do func(context.Context, redis.Cmdable) error) error {
	if c, ok := r.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error { return do(ctx, one) })
	}
	return do(ctx, r)
}
