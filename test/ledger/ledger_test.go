// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"sync"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// ledger is the account of a test: on one side every result of which a worker published, on the
// other what the runs say.
type ledger struct {
	mu       sync.Mutex
	attempts map[string]*attempt // by job id
	order    []string            // of job ids, by first PubAck
	effects  []effect
	values   int      // given out so far
	strange  []string // what workers got that nobody should have asked for

	pubAcks, duplicates int // the server's answers; of these, those that say that it has the Msg-Id already
	taken               int // jobs that workers got, again and again
	uploads             int // outputs in the object store that workers put there
}

// attempt is what was published about one job.
type attempt struct {
	Kind ending
	// Values are of all results that were published, also those whose PubAck never came: nobody
	// knows whether they are stored.
	Values map[string]bool
	// Acked says that the server has confirmed one of them.
	Acked bool
	// Dispatches are the messages that its job came in, by their sequence: a redelivery is
	// the same message.
	Dispatches map[uint64]bool
}

func newLedger() *ledger { return &ledger{attempts: map[string]*attempt{}} }

// value gives out a value that no other result has.
func (l *ledger) value(job string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values++
	return fmt.Sprintf("%s#%d", job, l.values)
}

// take notes that a worker got a job.
func (l *ledger) take(job string, kind ending, sequence uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken++
	a := l.attempts[job]
	if a == nil {
		a = &attempt{Kind: kind, Values: map[string]bool{}, Dispatches: map[uint64]bool{}}
		l.attempts[job] = a
	}
	a.Dispatches[sequence] = true
}

// offer notes a result before it is published.
func (l *ledger) offer(job, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts[job].Values[value] = true
}

// wonder notes what no worker should have got.
func (l *ledger) wonder(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strange = append(l.strange, what)
}

// confirm notes a PubAck.
func (l *ledger) confirm(job string, duplicate bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pubAcks++
	if duplicate {
		l.duplicates++
	}
	if a := l.attempts[job]; !a.Acked {
		a.Acked = true
		l.order = append(l.order, job)
	}
}

// see takes the effects out of a status write.
func (l *ledger) see(was, next *v1alpha1.WorkflowRun) {
	found := effects(was, next)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.effects = append(l.effects, found...)
}

// answered is how many attempts have a confirmed result.
func (l *ledger) answered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.order)
}

func (l *ledger) applied() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.effects)
}

func (l *ledger) uploaded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uploads++
}
