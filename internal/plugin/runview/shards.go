// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Shards says which replicas drive which runs.
type Shards struct {
	Replicas []Replica `json:"replicas"`
	// Unowned are the partitions without an owner.
	Unowned []int `json:"unowned,omitempty"`
	// Partitions are all of them, in order.
	Partitions []Partition `json:"partitions"`
}

// Partition is one of them: those below 64 have runs, 64 is what is done once.
type Partition struct {
	Owner string `json:"owner,omitempty"`
	Term  int64  `json:"term"` // grows with each change of the owner
	Runs  int    `json:"runs"` // that did not end
}

// Replica is a process of the operator.
type Replica struct {
	Name       string     `json:"name"`
	Renewed    *time.Time `json:"renewed,omitempty"`    // its Lease; nil: it has none
	Leaving    bool       `json:"leaving,omitempty"`    // it hands its partitions on
	Unfit      bool       `json:"unfit,omitempty"`      // others should have its partitions
	UnfitCause string     `json:"unfitCause,omitempty"` // why, as its Lease says
	Partitions int        `json:"partitions"`           // of runs
	Once       bool       `json:"once,omitempty"`       // it does what is done once
	Runs       int        `json:"runs"`
	Trouble    string     `json:"trouble,omitempty"` // why others may have its partitions; "": it is well

	lasts time.Duration // how long its Lease lasts, as that says
}

// Owner is what there is to know of who drives a run.
type Owner struct {
	Claims []ownership.Claim // who owns which partition; nil: that may not be seen, or no replica ever did
	// Lease is that of the owner: nil if it may not be seen, never renewed if there is none.
	Lease *coordinationv1.Lease
	// Leader is the Lease of --ownership=leader: nil if it may not be seen, or if there is none.
	// What Claims say then is from before: nobody takes that away.
	Leader *coordinationv1.Lease
}

// staleAfter is when a Lease is old enough to be worth a word. It is renewed every 2 s, and a clock
// may be a few seconds off.
const staleAfter = 15 * time.Second

// hedge is said where the clock of who asks is compared with that of a replica.
const hedge = ", if the clock here is right"

// trouble says that a replica is gone, or was not heard of for so long that others may take its
// partitions; "": neither.
func (r *Replica) trouble(now time.Time) string {
	switch {
	case r.Renewed == nil:
		return "has no Lease: it is gone"
	case now.Sub(*r.Renewed) > max(staleAfter, 2*r.lasts):
		return "has not renewed its Lease in time" + hedge
	}
	return ""
}

// idle is what trouble means for the runs of a replica.
func (r *Replica) idle(now time.Time) string {
	if r.Renewed == nil {
		return "has no Lease: nobody drives the run"
	}
	return "has not renewed its Lease since " + when(*r.Renewed, now) + ": nobody drives the run" + hedge
}

// Leader is who drives all runs, as the Lease of --ownership=leader says; "": nobody does so.
func Leader(lease *coordinationv1.Lease, now time.Time) string {
	if lease == nil || lease.Spec.HolderIdentity == nil || replicaOf(lease).trouble(now) != "" {
		return ""
	}
	return Printable(*lease.Spec.HolderIdentity, maxTextChars)
}

// ShardsOf puts together what ownership, Leases and runs say.
func ShardsOf(claims []ownership.Claim, leases []coordinationv1.Lease, runs []v1alpha1.WorkflowRun, now time.Time) *Shards {
	s := &Shards{Partitions: make([]Partition, len(claims))}
	for i := range runs {
		if p := protocol.Partition(string(runs[i].UID)); p < len(claims) && (runs[i].Status == nil || runs[i].Status.CompletedAt == nil) {
			s.Partitions[p].Runs++
		}
	}
	byName := map[string]*Replica{}
	for i := range leases {
		r := replicaOf(&leases[i])
		byName[r.Name] = r
	}
	for p, c := range claims {
		s.Partitions[p].Owner, s.Partitions[p].Term = c.Owner, c.Term
		if c.Owner == "" {
			s.Unowned = append(s.Unowned, p)
			continue
		}
		if byName[c.Owner] == nil {
			byName[c.Owner] = &Replica{Name: c.Owner}
		}
		byName[c.Owner].owns(p, s.Partitions[p].Runs)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		byName[name].Trouble = byName[name].trouble(now)
		s.Replicas = append(s.Replicas, *byName[name])
	}
	return s
}

// Owned adds which replica drives the run with a UID.
func (a *Answer) Owned(o Owner, uid string, now time.Time) {
	if leader := Leader(o.Leader, now); leader != "" { // while there is one, replicas that share the runs own nothing
		a.owned("the leader " + leader + " drives the run")
		return
	}
	p := protocol.Partition(uid)
	if p >= len(o.Claims) {
		return
	}
	owner := Printable(o.Claims[p].Owner, maxTextChars)
	switch {
	case owner == "":
		a.owned("no replica owns partition " + strconv.Itoa(p) + ": the run stands still until one takes it, which takes seconds")
	case o.Lease != nil && replicaOf(o.Lease).trouble(now) != "":
		a.owned(fmt.Sprintf("replica %s owned partition %d and %s", owner, p, replicaOf(o.Lease).idle(now)))
		a.advise(operatorHelp)
	default:
		a.owned(fmt.Sprintf("replica %s drives the run (partition %d)", owner, p))
	}
}

func (a *Answer) owned(text string) {
	a.beforeHelp(Fact{About: "owner", Text: text})
}

// advise adds advice, once.
func (a *Answer) advise(text string) {
	help := Fact{About: "help", Text: text}
	if !slices.Contains(a.Facts, help) {
		a.Facts = append(a.Facts, help)
	}
}

// replicaOf is a replica as its Lease says.
func replicaOf(l *coordinationv1.Lease) *Replica {
	cause := l.Annotations[ownership.UnfitAnnotation]
	r := &Replica{
		Name:    strings.TrimPrefix(l.Name, ownership.LeasePrefix),
		Leaving: l.Annotations[ownership.LeavingAnnotation] != "", Unfit: cause != "", UnfitCause: cause,
	}
	if l.Spec.RenewTime != nil {
		r.Renewed = &l.Spec.RenewTime.Time
	}
	if s := l.Spec.LeaseDurationSeconds; s != nil {
		r.lasts = time.Duration(*s) * time.Second
	}
	return r
}

// owns counts a partition.
func (r *Replica) owns(partition, runs int) {
	if partition == ownership.Singletons {
		r.Once = true
		return
	}
	r.Partitions++
	r.Runs += runs
}

// ShardsText writes a table for people.
func ShardsText(out io.Writer, s *Shards, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "REPLICA\tRENEWED\tPARTITIONS\tRUNS\tREMARKS")
	for _, r := range s.Replicas {
		renewed := "never"
		if r.Renewed != nil {
			renewed = duration.HumanDuration(now.Sub(*r.Renewed)) + " ago"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", Printable(r.Name, maxTextChars), renewed, r.Partitions, r.Runs, orDash(strings.Join(r.remarks(), ", ")))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if n := len(s.Unowned); n > 0 {
		fmt.Fprintf(out, "\n%d of %d partitions have no owner. Their runs stand still until a replica takes them, which takes seconds.\n", n, len(s.Partitions))
	}
	return nil
}

// Ailment is what makes a replica unfit. One of an older version does not tell: it is
// its stores then.
func (r *Replica) Ailment() string {
	switch r.UnfitCause {
	case ownership.UnfitProbation:
		return "has lost its Lease too often, and is given no partitions for a while"
	case ownership.UnfitStarting:
		return "has not begun, or begins again"
	case ownership.UnfitBlocked:
		return "does nothing while the Lease " + ownership.LeaderLeaseName + " has a holder, or while it cannot read that Lease"
	case ownership.UnfitRedis:
		return "does nothing while its Redis is not the one that the other replicas use, or while that is not known yet"
	}
	return "does not reach Redis or NATS"
}

func (r *Replica) remarks() (list []string) {
	if r.Once {
		list = append(list, "does what is done once")
	}
	if r.Leaving {
		list = append(list, "hands its runs on")
	}
	if r.Unfit {
		list = append(list, r.Ailment())
	}
	if r.Trouble != "" {
		list = append(list, r.Trouble)
	}
	return list
}
