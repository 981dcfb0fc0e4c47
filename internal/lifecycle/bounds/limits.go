// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"time"

	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Bounds of the API which the schema cannot express cheaply.
const (
	MaxSteps         = 200
	MaxRunsBelow     = 5000                               // runs below the one at the top, at any depth: Workflows that name each other would make billions
	MaxSpecBytes     = 512 << 10                          // of inputs, expressions and dependencies together: spec, status and annotations share etcd's 1.5 MiB
	MaxInputsBytes   = 64 << 10                           // spec.inputs
	MaxJobInputBytes = 64 << 10                           // spec.steps[].job.input, before evaluation
	MaxRenderedBytes = expr.MaxRenderedBytes              // job.input, after evaluation
	MaxOutputBytes   = 4 << 10                            // one output as stored
	MaxOutputsBytes  = 128 << 10                          // all outputs of a run as stored, with room for a reference for each step
	RefBytes         = 330                                // one reference to an output as stored
	MaxLoadedBytes   = protocol.MaxPayloadBytes           // outputs in the object store that one expression, or one decision, reads
	MaxErrorsBytes   = 24 << 10                           // all step error messages of a run as stored: what 256 KiB leave
	MaxErrorChars    = 1024                               // one step error message
	MaxCodeChars     = 64                                 // one step error code
	MaxSaidBytes     = 24 << 10                           // what approvers said in a run, as stored: names and comments
	LeastNameBytes   = 64                                 // of each approver's name, whatever others said
	MaxCommentChars  = 1024                               // the comment of an approver, also in bytes as stored
	MaxLocks         = 64                                 // locks of a run and its steps together
	MaxLockedItems   = 50                                 // items of a run under way that have locks of their own, or wait for them; but one of each step
	MaxKeysCost      = expr.MaxCost / MaxLockedItems      // the expressions of the keys of an item's locks: while it waits, a replica that has forgotten them evaluates them again
	MaxForEachSteps  = 20                                 // steps with forEach in a run
	MaxItemsParallel = 1000                               // items of a step under way
	MaxUnderWay      = 2000                               // items of a run that are with workers or wait for another attempt
	MaxGroups        = 96                                 // groups of items of a run, in flight and backing off each; four times as many in flight at the worst, where histories keep them apart
	MinInFlight      = 12                                 // of these each step with forEach may have in flight
	MinWaiting       = 8                                  // and backing off
	MinShare         = 4                                  // of what steps with forEach share; of groups in flight that histories keep apart, four times as many
	MaxBatches       = 24                                 // references to outputs of items of a run
	MaxHeldBytes     = 4 << 10                            // outputs of the items of one step in status
	MaxItemsOutput   = protocol.MaxPayloadBytes - 256<<10 // outputs of all items of a step; a list of them with its keys must fit into one object
	MaxFailedChars   = 4 << 10                            // failedItems of a step
	MaxFailedBytes   = 16 << 10                           // and of a run
	ItemsBytes       = 100 << 10                          // what status may need for the items of a run, outputs in it apart
	MaxInputDepth    = 100                                // nesting of inputs and templates of a spec, also in the webhook, and of outputs in status: tools that list runs read it
	MaxDecisionCost  = expr.MaxCost                       // what expressions may take in one pass before the others wait for the next one; at a desk, more
	MaxQuickCost     = expr.MaxCost / 12                  // and those of a quick decision: some 4 ms
	MaxQuickCompiled = 2 * MaxQuickCost                   // of what a quick decision compiles, evaluated or not: of those that MaxQuickCost lets begin, the last one may take as much again
	MaxQuickSpecCost = expr.MaxCost                       // of the expressions of a spec that a quick decision compiles at first sight: some 50 ms, 100 at most, once in a run's life
	MaxPatternsCost  = expr.MaxCost * 2 / 3               // to compile the patterns of a Workflow's parameters, once in a run's life, and when it is created: 15 to 50 ms at most
	MaxMatchCost     = expr.MaxCost                       // and to match the inputs of a run with them: 10 ms as a rule
	MaxQuickBytes    = 4 << 10                            // of a template that a quick decision evaluates: it may have to be compiled
	CostOfPlace      = 20                                 // of each condition and template, beside its expressions
	MaxNameChars     = 253                                // a name of a user or an object
	MaxLevel         = 100                                // Maximum of status.parent.level
	MaxUIDChars      = 64                                 // a UID of an object
	MaxMessageChars  = 512                                // one condition message or event
	MaxToolChars     = 256                                // the message of Reconciling and Stalled, which repeats that of Succeeded
	MaxEventBytes    = 1024                               // one event, as the API server counts
	MaxProblemsChars = 2048                               // the message of InvalidSpec
)

// MaxRenderedTogether is how many bytes of inputs the decisions of one pass render before others
// wait for the next.
const MaxRenderedTogether = 4 << 20

// MinRetryAfter keeps a worker that asks for a retry at once from making the run spin.
const MinRetryAfter = 100 * time.Millisecond

// MinWake keeps Wake in the future for what is due at once but needs this decision persisted first.
const MinWake = time.Millisecond

// Defaults repeat those of the schema for objects that did not pass an API server.
const (
	DefaultParallel       = 20
	DefaultMaxParallel    = 10
	DefaultFinallyTimeout = 300
	DefaultTimeout        = 3600
	DefaultMaxFailures    = 3
	DefaultInitialMillis  = 1000
	DefaultFactorPercent  = 200
	DefaultMaxMillis      = 60000
	DefaultJitterPercent  = 20
	MaxBackoffMillis      = 86400000
	DefaultMaxRetryAfter  = 30 * time.Second // of LockPolicy spec.delivery; other products honoured 140 hours blindly
)

// PositiveOr is a number, or another one where it is not positive.
func PositiveOr[T int32 | int64](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}

// ValueOr is the value of a field that may be absent.
func ValueOr[T int32 | int64](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// Seconds is a number of seconds as a duration.
func Seconds(s int32) time.Duration { return time.Duration(s) * time.Second }
