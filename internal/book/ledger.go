// SPDX-License-Identifier: Apache-2.0

package book

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Ledger is the account of a test: on one side every result of which a worker published, on the
// other what the runs say.
type Ledger struct {
	mu       sync.Mutex
	attempts map[string]*Attempt // by job id
	order    []string            // of job ids, by first PubAck
	effects  []effect
	values   int      // given out so far
	strange  []string // what workers got that nobody should have asked for

	pubAcks, duplicates int // the server's answers; of these, those that say that it has the Msg-Id already
	taken               int // jobs that workers got, again and again
	uploads             int // outputs in the object store that workers put there
}

// Attempt is what was published about one job.
type Attempt struct {
	Kind Ending
	// Values are of all results that were published, also those whose PubAck never came: nobody
	// knows whether they are stored.
	Values map[string]bool
	// Acked says that the server has confirmed one of them.
	Acked bool
	// Dispatches are the messages that its job came in, by their sequence: a redelivery is
	// the same message.
	Dispatches map[uint64]bool

	// taken is when a worker got the job first, answered when the server confirmed a result of it.
	taken, answered time.Time
}

// New is an empty ledger.
func New() *Ledger { return &Ledger{attempts: map[string]*Attempt{}} }

// value gives out a value that no other result has.
func (l *Ledger) value(job string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values++
	return fmt.Sprintf("%s#%d", job, l.values)
}

// take notes that a worker got a job.
func (l *Ledger) take(job string, kind Ending, sequence uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken++
	a := l.attempts[job]
	if a == nil {
		a = &Attempt{Kind: kind, Values: map[string]bool{}, Dispatches: map[uint64]bool{}, taken: clock.RealClock{}.Now()}
		l.attempts[job] = a
	}
	a.Dispatches[sequence] = true
}

// offer notes a result before it is published.
func (l *Ledger) offer(job, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts[job].Values[value] = true
}

// wonder notes what no worker should have got.
func (l *Ledger) wonder(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.strange = append(l.strange, what)
}

// confirm notes a PubAck.
func (l *Ledger) confirm(job string, duplicate bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pubAcks++
	if duplicate {
		l.duplicates++
	}
	if a := l.attempts[job]; !a.Acked {
		a.Acked, a.answered = true, clock.RealClock{}.Now()
		l.order = append(l.order, job)
	}
}

// See takes the effects out of a status write.
func (l *Ledger) See(was, next *v1alpha1.WorkflowRun) {
	found := effects(was, next)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.effects = append(l.effects, found...)
}

// Answered is how many attempts have a confirmed result.
func (l *Ledger) Answered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.order)
}

// Applied is how many effects were seen.
func (l *Ledger) Applied() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.effects)
}

func (l *Ledger) uploaded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uploads++
}

// Verdict is all that is wrong with what became of a plan.
func (l *Ledger) Verdict(p Plan, finals []v1alpha1.WorkflowRun) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong := slices.Concat(l.strange, Judge(Account{Plan: p.ByName(), Attempts: l.attempts, Effects: l.effects, Finals: finals}))
	if n := l.stored(); n != p.size.Results() {
		wrong = append(wrong, fmt.Sprintf("%d attempts were answered, %d were planned", n, p.size.Results()))
	}
	return wrong
}

// stored is how many attempts have a stored result: it was confirmed, or has an effect. A worker
// that ends before the confirmation comes leaves its job to another one; where the result had an
// effect first, that job is withdrawn, and nobody answers it again. l.mu is held.
func (l *Ledger) stored() int {
	all := map[string]bool{}
	for _, job := range l.order {
		all[job] = true
	}
	for _, e := range l.effects {
		if l.attempts[e.Job] != nil { // the judge tells of others
			all[e.Job] = true
		}
	}
	return len(all)
}

// Figures are those of a report.
type Figures struct{ Answered, PubAcks, Duplicates, Redeliveries, Uploads int }

// Figures are what was done so far.
func (l *Ledger) Figures() Figures {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Figures{Answered: l.stored(), PubAcks: l.pubAcks, Duplicates: l.duplicates, Redeliveries: l.taken - len(l.attempts), Uploads: l.uploads}
}
