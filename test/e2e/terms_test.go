// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// author is who wrote a run: the process is in the id of its lease. Versions are those of the API
// server's store, so writes of runs and of owners have one order.
type author struct {
	version uint64
	process string
}

// term is an entry of a partition, from the version that wrote it.
type term struct {
	version uint64
	ownership.Claim
}

// terms are the owners that partitions had.
type terms struct {
	mu  sync.Mutex
	all [ownership.Partitions][]term
}

// followTerms watches the owners until ctx ends.
func followTerms(ctx context.Context) *terms {
	GinkgoHelper()
	t := &terms{}
	only := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", ownership.ObjectName)}
	var list corev1.ConfigMapList
	Expect(k8s.List(ctx, &list, client.InNamespace(devenv.OperatorNamespace), only)).To(Succeed())
	for i := range list.Items {
		t.see(&list.Items[i])
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(context.WithoutCancel(ctx), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return k8s.Watch(ctx, &corev1.ConfigMapList{}, &client.ListOptions{Namespace: devenv.OperatorNamespace, FieldSelector: only.Selector, Raw: &o})
		},
	})
	Expect(err).NotTo(HaveOccurred())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watcher.ResultChan() {
			if object, ok := e.Object.(*corev1.ConfigMap); ok && e.Type != watch.Deleted {
				t.see(object)
			}
		}
	}()
	DeferCleanup(func() {
		watcher.Stop()
		<-done
	})
	return t
}

func (t *terms) see(object *corev1.ConfigMap) {
	claims, err := ownership.Decode(object)
	if err != nil {
		return // another version of it comes
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for p, c := range claims {
		if n := len(t.all[p]); n == 0 || t.all[p][n-1].Claim != c {
			t.all[p] = append(t.all[p], term{versionOf(object), c})
		}
	}
}

func versionOf(o client.Object) uint64 {
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// disorder says what is wrong with the writes of one run, given the terms of its partition: whoever
// wrote owned it before, and no write is of an earlier term than the one before.
func disorder(terms []term, writes []author) (wrong []string) {
	last := int64(0)
	for _, w := range writes {
		of := int64(0)
		for _, t := range terms {
			if t.version < w.version && strings.HasSuffix(t.Owner, "."+w.process) {
				of = t.Term
			}
		}
		switch {
		case of == 0:
			wrong = append(wrong, fmt.Sprintf("version %d was written by %s, which never owned it", w.version, w.process))
		case of < last:
			wrong = append(wrong, fmt.Sprintf("version %d was written under term %d, after one of term %d", w.version, of, last))
		}
		last = max(last, of)
	}
	return wrong
}

// expectInOrder says that the terms of no run are interleaved.
func (t *terms) expectInOrder(ctx context.Context, h *history) {
	GinkgoHelper()
	writes, changes := 0, 0
	Eventually(func() (wrong []string) { // the watch of owners may be behind that of runs
		t.mu.Lock()
		defer t.mu.Unlock()
		h.mu.Lock()
		defer h.mu.Unlock()
		writes, changes = 0, 0
		for uid, of := range h.authors {
			writes += len(of)
			for _, problem := range disorder(t.all[protocol.Partition(uid)], of) {
				wrong = append(wrong, uid+": "+problem)
			}
		}
		for _, of := range t.all {
			changes += len(of)
		}
		return wrong
	}).WithContext(ctx).WithTimeout(30 * time.Second).WithPolling(pollInterval).Should(BeEmpty())
	AddReportEntry("terms", fmt.Sprintf("%d writes of runs are in the order of %d changes of owners", writes, changes))
}

// note keeps who wrote a run.
func (h *history) note(run *v1alpha1.WorkflowRun) {
	process, _, _ := strings.Cut(run.Status.Lock.LeaseID, ".")
	h.authors[string(run.UID)] = append(h.authors[string(run.UID)], author{versionOf(run), process})
}

// Planted histories: disorder finds what it has to.
func TestTermsThatAreInterleavedAreFound(t *testing.T) {
	owners := []term{{10, ownership.Claim{Owner: "r1.a", Term: 1}}, {20, ownership.Claim{Owner: "r2.b", Term: 2}}, {30, ownership.Claim{Owner: "", Term: 3}}, {40, ownership.Claim{Owner: "r1.a", Term: 4}}}
	for name, c := range map[string]struct {
		writes []author
		wrong  int
	}{
		"in order":                           {[]author{{11, "a"}, {12, "a"}, {21, "b"}, {41, "a"}}, 0},
		"the old owner, before the new one":  {[]author{{11, "a"}, {21, "a"}, {22, "b"}}, 0},
		"the old owner, after the new one":   {[]author{{11, "a"}, {21, "b"}, {22, "a"}}, 1},
		"before it owned anything":           {[]author{{11, "a"}, {15, "b"}}, 1},
		"a process that nobody knows":        {[]author{{11, "c"}}, 1},
		"the one before, in its second term": {[]author{{21, "b"}, {41, "a"}, {42, "b"}}, 1},
	} {
		if got := disorder(owners, c.writes); len(got) != c.wrong {
			t.Errorf("%s: %s", name, slices.Concat(got))
		}
	}
}
