// SPDX-License-Identifier: Apache-2.0

// Package rollout decides how a change of a LockPolicy is tried on a part of the units, and whether
// it goes on or back. A unit is a run, for a change of run locks; or a tenant in one minute, for a
// change of how slots are asked for. It is pure: no I/O, no clock, no random source. Decide maps
// (plan, state, counts, now) to (state', event).
//
// Example: stepsPercent is [5, 20, 50]. 5 of 100 runs take their locks under the candidate, 5
// others are the control. The candidate makes more runs wait in vain: the rollout ends with
// BusyRunsWorse, and all runs have the baseline again.
//
//	           edit                 enough evidence, none against it
//	Stable ──────────> Progressing ──────────────────────────────────> next step ... ──> Promoted
//	  ^                  │   ^ │                                                            │
//	  │                  │   │ └── the step is over, and the plan holds ──> Holding         │
//	  │                  │   └──────── judged again with each count ───────────┘            │
//	  │                  └── evidence against it, wrong data, too little of it ──> RolledBack
//	  └───────────────────────────── a new edit begins anew ────────────────────────────────┘
//
// # Arms
//
// Each run has a slot in [0, 100), from a hash of its UID and the candidate. At percent p the
// canary is [0, p), the control is [100-p, 100). Both are equally large and begin at the same time,
// and no slot ever changes sides when p grows. Another candidate has other slots, so the same runs
// are not always the first.
//
// # Votes
//
// Each run that ends votes once: was its lock busy (contended), was it busy again when it was tried
// again (busy), its longest wait, its latency. Retries come in clusters: a run that lost a race
// loses the next ones, too. A test that takes each retry as evidence of its own would find
// differences where there are none; a test of votes cannot.
//
// # The test
//
// Let the candidate be no different: for each run the outcome is what it would be in the other arm.
// Then the outcomes are fixed, and only the hash is random. Of the n runs of both arms that voted
// yes, each is the canary's with probability 1/2, independent of the others. Nothing is assumed of
// when they vote, or how outcomes depend on each other.
//
// Against "p = 1/2" stands a mixture: p uniform in (1/2, 1). With k of n votes the canary's, the
// ratio of the likelihoods is
//
//	         2 * integral from 1/2 to 1 of p^k (1-p)^(n-k) dp       sum over j = 0..k of C(n+1, j)
//	E(k,n) = ------------------------------------------------   =   ------------------------------
//	                          (1/2)^n                                      (n+1) * C(n, k)
//
// (The integral is an incomplete beta function, which for integers is a tail of the binomial
// distribution.) E is a martingale with mean 1 if there is no difference. By Ville's inequality it
// ever reaches 1/alpha with probability alpha at most, however often it is looked at: so a look at
// each new count costs nothing, and there is no window to choose.
//
// Contended runs that did not vote yes are evidence, too: where nearly all are busy in one arm, few
// of its runs are not. E2 is the same for the control's share of these. E and E2 have their
// increments from different runs, so E*E2 is a martingale as well, and so is the mean of E and
// E*E2, which is used. It costs a factor of 2 at most where E2 says nothing.
//
// For waits and latencies the vote is "longer than the threshold". The threshold is the
// control's 95th percentile, frozen when the control has minContendedRuns values; only votes
// after that count. A threshold that moved with the votes would depend on the arms, and the
// martingale would be none. Where that percentile is above all bounds the threshold is the last
// bound: any that is known before the votes will do.
//
// The error of the whole rollout, over all steps and looks, is 1 %: busy 0.5 %, waits 0.2 %,
// latency 0.2 %, sample ratio and hard events that both arms have 0.1 %.
//
// # Runs that are late
//
// Runs whose locks were not busy end first. So an arm that is slow has good votes first, and the
// others later. Where more runs of the control are under way than of the canary, so many are taken
// to vote yes before a candidate fails: that only takes evidence away, so it makes no false alarm.
// What passes takes no vote for granted. It waits while the runs that ended are far fewer in the
// control, and those that are missing may still end; far fewer in the canary are a fault of the
// candidate (SampleRatioMismatch).
//
// Runs under way are those that are there: counts do not tell, since a run that was deleted began
// and never ends. What the canary lost more than the control, where that is hardly chance, may be
// contended runs that somebody saw wait.
//
// Nobody knows what a deleted run would have voted. Let a candidate do no run harm: each that is
// busy or deleted under it would be one of both under the baseline, too. So of the runs that are
// busy or deleted each is the canary's with probability 1/2 at most, and E of their number reaches
// its limit no more often than that of votes. What both arms lost counts, not only the difference:
// deletes by chance are a random walk, and hide those of runs that hung. Where far more are deleted
// than are busy no test finds a worse candidate: as many busy ones of the control may be among the
// deleted. Votes that are on their way are not told from deletes, and count the same. Whether the
// difference is large enough (the guardrail) is asked of votes, and of what the control lost more.
//
// Evidence that keeps a candidate from a pass is another matter. What the control lost more counts
// there only where that is hardly chance: else deletes would have worse candidates pass. And it
// counts as busy only. A run that was deleted as it waited for its lock says nothing of results,
// and of waits only if it was not gone before there was a threshold, which is not known. So those
// questions have no such excuse. A promotion by it tells of the runs without a vote.
//
// A pass does not wait for what the control lost more. Let people delete what lasts for long,
// whatever its arm. A run that was busy again lasts longer, so of those that are left fewer were
// busy than of all: the control looks better than it is, and no candidate passes by that. Who
// deletes by arm, as a tenant may, can shield a candidate; that is so of votes, too.
//
// Votes come late, too: a process reports what it counted each half a minute. Which of the runs
// that ended lately are counted is not known. So as many of them as counts lack are taken to be
// under way, in each arm, until their votes must be there. Were all taken, those of both arms would
// make up for each other, though counts may lack more votes of the control. A run that ended and
// was deleted since is one of them: the process that decides is told of deletes, but of none from
// before it began. Such a run is as one that was deleted before its end. So is one whose vote a
// process had not reported when it died.
//
// # Contention that is gone
//
// Whether a lock is busy at all hardly depends on most policies. Some take contention away. Their
// few contended runs are no group to compare: they are those that would have fared worst. Where
// fewer runs of the canary look contended, the question is how many of all runs that ended were
// busy, and only those that were are evidence. That is the half of their E, which is never more
// than the mean of E and E*E2 of the contended ones: so there are no more false
// alarms than without.
//
// Contended runs that wait for longer end later, so a canary that is worse looks less contended,
// too. Such a canary has more runs under way than the control. Where that is hardly chance, those
// that it has more count as contended for this question. The others do not: both arms have them,
// and they would hide that contention is gone wherever runs last for long.
//
// Such a candidate passes with minContendedRuns runs that ended, and as many contended ones of the
// control, once it is certain (0.5 %) that fewer of its runs are contended. All of its runs under
// way count as contended: it might be they that wait for their lock, and never end. A run is under
// way from its first write, which may be that it waits for its first lock. It says so after the
// budget of a wait, that of the baseline in all arms, so one that never got that far
// is not counted.
//
// A vote is judged worse if the evidence reaches its limit and the canary's votes are above the
// guardrail's percentage of the control's: so a difference that is certain but small passes. Above
// two thirds there is no room for half as many again. So it is also judged worse if the others'
// votes are fewer by that factor, and the canary's are above that percentage of two fifths. With a
// factor b and a share p of the control the bound of the canary's share is
//
//	min(b*p, max(b*2/5, 1 - (1-p)/b))
//
// It never falls as p grows: votes that are taken for yes of the control make no accusation. Up
// to b = 3/2 the two fifths change nothing, as there the two others are equal at p = 1/(b+1). From
// b = 5/2 on the bound is b*p: who wants it wide has it wide. A guardrail that is Off asks nothing.
//
// # Tenant-minutes
//
// Starts of one tenant want the same lock, so two of them in two arms would interfere: who is under
// a good policy suffers from who is under a bad one. Therefore the unit is a tenant in a
// Period, and the coin is thrown for each anew (a switchback). All that was said of runs holds
// of units: let the candidate be no different, then what happens in each minute is fixed, also
// what one minute leaves for the next, and also whether and how the unit votes; only the hash
// is random. That takes
//
//   - one vote for each unit, over all processes: two with the same coin would not be independent.
//     The vote is claimed in Redis. Who does not know that it has the claim does not vote
//   - nothing that depends on the arm's name: who claims, which start is drawn, and when it is
//     counted are the same functions in both arms.
//
// A vote is that of one start: of those that found the lock busy, one drawn by a hash. "Any start
// was busy again" would be true of nearly each burst under each policy, and the first one of a
// burst says little of those behind it.
//
// Here "contended" depends on the policy: strategy Atomic has no lock that could be busy. So all
// that voted are asked whether they were busy again, contended or not; and a step needs as many
// contended units in one of the arms, whichever, as it needs units that voted in each. Arms are
// drawn, so contention in the control says that there was as much occasion for it in the canary.
//
// "Runs" are units that voted, the same as "ended". Their sizes are compared as those of runs:
// votes that are lost in one arm only show there. Of results and hard guardrails there is nothing
// to count.
//
// # Guarantees
//
//   - No promotion without evidence: each step needs minContendedRuns contended runs that ended in
//     each arm, since its begin (of tenant-minutes, and where contention is gone, see above), and
//     no vote that leans against the candidate, nor hard events that do. Or a user's command.
//   - No promotion of a candidate that is on more of the units than the last step of the plan now
//     says, but by a user's command. Arms do not shrink.
//   - There is one candidate at most. A new edit supersedes it; its counts do not count for the
//     next one, whose name differs.
//   - Counts never go back. If they do, the data is wrong, and the candidate is
//     rolled back (SampleRatioMismatch).
//   - A clock that went back ends nothing early: time only ever ends a step as InsufficientData,
//     never as a pass.
//   - Decide is deterministic. Replicas that decide on the same object decide the same, and one of
//     them writes it.
//
// # Limits
//
// A hard guardrail (locks abandoned, fences refused, results that could not be processed in the
// canary and none in the control) is one event, not a test: without a difference it hits the canary
// first every other time. Such events must be rare for a rollout to succeed. Once the control has
// one, too, it is a test: of the runs that were struck, each is in either arm with the same
// probability. That takes runs to be struck once each. One whose fence is refused may be counted
// once by each of its owners. A vote counts when its run ends. A candidate under which runs never
// end is seen by the sample ratio of ended runs. A baseline with delays of minutes may keep a
// better candidate from passing for as long: what its control may still vote is not known.
//
// Arms of tenant-minutes touch at the edges of minutes: starts that wait then meet those of the
// next arm, for 10 s at most of 60. So do starts of processes whose clocks are apart. That makes a
// difference look smaller, and makes none where there is none.
package rollout
