package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Bounds of the API which the schema cannot express cheaply.
const (
	maxSteps         = 200
	maxSpecBytes     = 512 << 10                          // of inputs, expressions and dependencies together: spec, status and annotations share etcd's 1.5 MiB
	maxInputsBytes   = 64 << 10                           // spec.inputs
	maxJobInputBytes = 64 << 10                           // spec.steps[].job.input, before evaluation
	maxRenderedBytes = expr.MaxRenderedBytes              // job.input, after evaluation
	maxOutputBytes   = 4 << 10                            // one output as stored
	maxOutputsBytes  = 128 << 10                          // all outputs of a run as stored, with room for a reference for each step
	refBytes         = 330                                // one reference to an output as stored
	maxLoadedBytes   = protocol.MaxPayloadBytes           // outputs in the object store that one expression, or one decision, reads
	maxErrorsBytes   = 24 << 10                           // all step error messages of a run as stored: what 256 KiB leave
	maxErrorChars    = 1024                               // one step error message
	maxCodeChars     = 64                                 // one step error code
	maxSaidBytes     = 24 << 10                           // what approvers said in a run, as stored: names and comments
	leastNameBytes   = 64                                 // of each approver's name, whatever others said
	maxCommentChars  = 1024                               // the comment of an approver, also in bytes as stored
	maxForEachSteps  = 20                                 // steps with forEach in a run
	maxItemsParallel = 1000                               // items of a step under way
	maxUnderWay      = 2000                               // items of a run that are with workers or wait for another attempt
	maxGroups        = 96                                 // groups of items of a run, in flight and backing off each
	minShare         = 4                                  // of these each step with forEach may have
	maxBatches       = 24                                 // references to outputs of items of a run
	maxHeldBytes     = 4 << 10                            // outputs of the items of one step in status
	maxItemsOutput   = protocol.MaxPayloadBytes - 256<<10 // outputs of all items of a step; a list of them with its keys must fit into one object
	maxFailedChars   = 4 << 10                            // failedItems of a step
	maxFailedBytes   = 16 << 10                           // and of a run
	itemsBytes       = 100 << 10                          // what status may need for the items of a run, outputs in it apart
	maxInputDepth    = 100                                // nesting of inputs and templates of a spec: tools that list runs read it
	maxDepth         = 4 << 10                            // nesting that JSON readers surely take
	maxDecisionCost  = expr.MaxCost                       // what the expressions of the decisions of one pass may take before they wait for the next
	maxQuickCost     = expr.MaxCost / 12                  // and those of a quick decision: some 4 ms
	maxQuickBytes    = 4 << 10                            // of a template that a quick decision evaluates: it may have to be compiled
	costOfPlace      = 20                                 // of each condition and template, beside its expressions
	maxNameChars     = 253                                // a name of a user or an object
	maxMessageChars  = 512                                // one condition message or event
	maxToolChars     = 256                                // the message of Reconciling and Stalled, which repeats that of Succeeded
	maxEventBytes    = 1024                               // one event, as the API server counts
	maxProblemsChars = 2048                               // the message of InvalidSpec
)

// maxRenderedTogether is how many bytes of inputs the decisions of one pass render before others wait for the next.
const maxRenderedTogether = 4 << 20

// minRetryAfter keeps a worker that asks for a retry at once from making the run spin.
const minRetryAfter = 100 * time.Millisecond

// minWake keeps Wake in the future for what is due at once but needs this decision persisted first.
const minWake = time.Millisecond

// Defaults repeat those of the schema for objects that did not pass an API server.
const (
	defaultParallel       = 20
	defaultMaxParallel    = 10
	defaultFinallyTimeout = 300
	defaultTimeout        = 3600
	defaultMaxFailures    = 3
	defaultInitialMillis  = 1000
	defaultFactorPercent  = 200
	defaultMaxMillis      = 60000
	defaultJitterPercent  = 20
	maxBackoffMillis      = 86400000
	defaultMaxRetryAfter  = 30 * time.Second // of LockPolicy spec.delivery; other products honoured 140 hours blindly
)

func positiveOr[T int32 | int64](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}

func valueOr[T int32 | int64](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func seconds(s int32) time.Duration { return time.Duration(s) * time.Second }

func attemptTimeout(s *v1alpha1.Step) time.Duration {
	return seconds(positiveOr(s.TimeoutSeconds, defaultTimeout))
}

func startTimeout(s *v1alpha1.Step) time.Duration {
	return seconds(positiveOr(s.StartTimeoutSeconds, defaultTimeout))
}
