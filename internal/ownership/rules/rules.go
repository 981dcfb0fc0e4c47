// SPDX-License-Identifier: Apache-2.0

package rules

// rule is a rule of the protocol that tests can switch off, to show what it is for.
type rule uint32

const (
	// ruleSentAt: a renewal counts from when it was sent.
	ruleSentAt rule = 1 << iota
	// ruleLapse: a session whose time is over has ended, also if a renewal succeeds later.
	ruleLapse
	// ruleBaseline: entries of before the session are void.
	ruleBaseline
	// ruleBaselineAfterRenewal: the look that begins a session is sent after the renewal.
	ruleBaselineAfterRenewal
	// ruleConfirm: a member acts only as long as looks show that its entries stand.
	ruleConfirm
	// ruleLeaseGone: a session ends when own Lease was deleted or replaced.
	ruleLeaseGone
	// ruleVoidAtStop: what a member stopped acting under gives no right again.
	ruleVoidAtStop
	// ruleLoseBeforeWrite: an entry is given away after the work has ended.
	ruleLoseBeforeWrite
	// ruleEvidence: an entry is taken only from a member whose Lease is over.
	ruleEvidence
	// ruleListAfterLook: the list that proves it was sent after the entry was read.
	ruleListAfterLook
	// ruleWholeLease: a Lease is over after the whole of its time, not a part of it.
	ruleWholeLease
	// ruleDeletedIsNotOver: a Lease that was deleted counts as one that is not renewed.
	ruleDeletedIsNotOver
	// ruleGrantIsLife: a member without Lease counts as live when it was given an entry.
	ruleGrantIsLife
	// ruleHold: no claims for a whole Lease after the object was made anew.
	ruleHold
	// ruleTermGrows: each change has a higher term.
	ruleTermGrows
	// ruleOwnVoid: a member claims again, or gives away, what is its own and void.
	ruleOwnVoid
	// ruleCompareAndSwap: a write replaces only what it was decided on. The API server keeps it.
	ruleCompareAndSwap
	// ruleLeaving: a member that leaves is given nothing.
	ruleLeaving
	// ruleListBeforeGift: whom partitions are given to is said by a list that came a moment ago, or
	// was sent after their work had ended, and that is not outdated.
	ruleListBeforeGift
	// ruleToldIsOld: what a watch tells confirms nothing.
	ruleToldIsOld
)
