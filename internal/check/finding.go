// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"slices"
)

// Verdict is what is said of one thing.
type Verdict string

// The verdicts.
const (
	OK      Verdict = "OK"
	Warning Verdict = "Warning" // it works, with less margin or less safety than it should have
	Failed  Verdict = "Failed"  // something does not work, or a guarantee is not kept
	Unknown Verdict = "Unknown" // the facts could not be had
)

// rank orders verdicts: the worst first.
func (v Verdict) rank() int { return slices.Index([]Verdict{Failed, Unknown, Warning, OK}, v) }

// Code names one check. It never changes its meaning.
type Code string

// Finding is what one check says.
type Finding struct {
	Code     Code    `json:"code"`
	Category string  `json:"category"`
	Verdict  Verdict `json:"verdict"`
	Message  string  `json:"message"`
	// Hint says what to do; empty where there is nothing to do.
	Hint string `json:"hint,omitempty"`
}

// The codes. docs/checks.md has a section for each.
const (
	KubernetesVersion Code = "SYN101"
	CRDsThere         Code = "SYN102"
	CRDsEqual         Code = "SYN103"
	AdmissionPolicies Code = "SYN104"
	LowerFence        Code = "SYN105"
	OperatorReady     Code = "SYN106"
	OperatorVersions  Code = "SYN107"
	OperatorRights    Code = "SYN108"
	InstallRights     Code = "SYN109"
	WebhookAuthority  Code = "SYN110"
	WebhookReached    Code = "SYN111"
	PartitionOwners   Code = "SYN112"
	ClassConflicts    Code = "SYN113"
	PolicyArithmetic  Code = "SYN114"
	OneOperator       Code = "SYN115"
	NATSVersion       Code = "SYN120"
	NATSStreams       Code = "SYN121"
	NATSDrift         Code = "SYN122"
	NATSReplicas      Code = "SYN123"
	NATSMaxPayload    Code = "SYN124"
	NATSConsumers     Code = "SYN125"
	NATSRights        Code = "SYN126"
	RedisVersion      Code = "SYN130"
	RedisEviction     Code = "SYN131"
	RedisPersistence  Code = "SYN132"
	RedisReplicas     Code = "SYN133"
	RedisLatency      Code = "SYN134"
	ClocksApart       Code = "SYN140"
	CoalescedOnOne    Code = "SYN150"
	RejectUnguarded   Code = "SYN151"
	ManifestTaken     Code = "SYN160"
)

// Categories.
const (
	versions   = "versions"
	crds       = "crds"
	admission  = "admission"
	operator   = "operator"
	rights     = "rights"
	webhook    = "webhook"
	partitions = "partitions"
	policies   = "policies"
	natsServer = "nats"
	redis      = "redis"
	clocks     = "clocks"
	risks      = "risks"
	manifests  = "manifests"
)

// Category is the group that a code belongs to.
func (c Code) Category() string { return categories()[c] }

// Codes are all codes, in order.
func Codes() []Code {
	var all []Code
	for c := range categories() {
		all = append(all, c)
	}
	slices.Sort(all)
	return all
}

func categories() map[Code]string {
	return map[Code]string{
		KubernetesVersion: versions, CRDsThere: crds, CRDsEqual: crds, AdmissionPolicies: admission, LowerFence: admission,
		OperatorReady: operator, OperatorVersions: operator, OneOperator: operator, OperatorRights: rights, InstallRights: rights,
		WebhookAuthority: webhook, WebhookReached: webhook, PartitionOwners: partitions, ClassConflicts: policies, PolicyArithmetic: policies,
		NATSVersion: natsServer, NATSStreams: natsServer, NATSDrift: natsServer, NATSReplicas: natsServer, NATSMaxPayload: natsServer,
		NATSConsumers: natsServer, NATSRights: natsServer,
		RedisVersion: redis, RedisEviction: redis, RedisPersistence: redis, RedisReplicas: redis, RedisLatency: redis,
		ClocksApart: clocks, CoalescedOnOne: risks, RejectUnguarded: risks, ManifestTaken: manifests,
	}
}

func (c Code) find(v Verdict, hint, format string, values ...any) Finding {
	return Finding{Code: c, Category: c.Category(), Verdict: v, Message: fmt.Sprintf(format, values...), Hint: hint}
}

func (c Code) ok(format string, values ...any) []Finding {
	return []Finding{c.find(OK, "", format, values...)}
}

// unread is Unknown, for facts that could not be had.
func (c Code) unread(u Unread) []Finding {
	return []Finding{c.find(Unknown, u.Hint, "cannot tell: %s", u.Why)}
}

// orOK is the findings, or that all is well where there are none.
func (c Code) orOK(found []Finding, format string, values ...any) []Finding {
	if len(found) > 0 {
		return found
	}
	return c.ok(format, values...)
}

// unreadAll is Unknown for each of the codes.
func unreadAll(u Unread, codes ...Code) []Finding {
	var all []Finding
	for _, c := range codes {
		all = append(all, c.unread(u)...)
	}
	return all
}

// Outcome is the whole in one verdict: Failed if anything failed, else Unknown if anything could
// not be told, else OK. Warnings are well enough.
func Outcome(findings []Finding) Verdict {
	switch worst := Worst(findings); worst {
	case Failed, Unknown:
		return worst
	default:
		return OK
	}
}

// Worst is the worst verdict; OK where there are no findings.
func Worst(findings []Finding) Verdict {
	if len(findings) == 0 {
		return OK
	}
	return slices.MinFunc(findings, func(a, b Finding) int { return cmp.Compare(a.Verdict.rank(), b.Verdict.rank()) }).Verdict
}
