// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strconv"
	"time"
)

// Unit is what is put into an arm, and votes.
type Unit string

// The units.
const (
	// Run is one run: its locks are its own, so no arm has to do with another. The zero Unit means
	// the same.
	Run Unit = "Run"
	// TenantMinute is one tenant in one Period: those who want the same lock are in one arm.
	TenantMinute Unit = "TenantMinute"
)

// Period is how long a tenant stays in an arm. It is six times the longest wait for the lock of a
// tenant, so what one period leaves behind is a small part of the next; and so short that a few
// tenants make a hundred units in an hour.
const Period = time.Minute

// PeriodOf numbers the periods since 1970: the same number in all replicas whose clocks agree.
func PeriodOf(at time.Time) int64 { return at.Unix() / int64(Period/time.Second) }

// BeginOf is when a period begins.
func BeginOf(period int64) time.Time { return time.Unix(period*int64(Period/time.Second), 0).UTC() }

// NameOf names a tenant in a period, for ArmOf. Each has another name, so a coin of its own.
func NameOf(tenant string, period int64) string { return tenant + "/" + strconv.FormatInt(period, 10) }

// plural is how users read it.
func (u Unit) plural() string {
	if u == TenantMinute {
		return "tenant-minutes"
	}
	return "runs"
}

// field is what of a policy is tried on it.
func (u Unit) field() string {
	if u == TenantMinute {
		return "admission"
	}
	return "runLock"
}

// asked is how many units of an arm were asked whether the lock was busy again. For runs it is
// those whose lock was busy at all. For tenant-minutes it is all that voted: whether a lock is ever
// busy there depends on the policy, strategy Atomic has none.
func (u Unit) asked(c Counts) int64 {
	if u == TenantMinute {
		return c.Ended
	}
	return c.Contended
}

// lacks says what evidence a step lacks, given its counts; empty: none.
func (u Unit) lacks(canary, control Counts, least int64) string {
	if u != TenantMinute {
		if min(canary.Contended, control.Contended) >= least {
			return ""
		}
		return fmt.Sprintf("%d contended runs of the canary and %d of the control ended in this step, %d of each are needed", canary.Contended, control.Contended, least)
	}
	if max(canary.Contended, control.Contended) >= least && min(canary.Ended, control.Ended) >= least {
		return ""
	}
	return fmt.Sprintf("%d tenant-minutes of the canary voted in this step, %d of them contended, and %d of the control, %d contended; %d of each are needed, and as many contended in one of the arms",
		canary.Ended, canary.Contended, control.Ended, control.Contended, least)
}
