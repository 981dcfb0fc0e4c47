// SPDX-License-Identifier: Apache-2.0

package facts

import "time"

// answerPatience bounds how long a time-out waits for answers that cannot be had.
const answerPatience = time.Minute

// Answers is what the shell found out about results that the stream has stored and that need
// not have been delivered: they lie undelivered after a change of leader, or were given back
// with a delay.
type Answers struct {
	// AsOf: every result of the run that was stored until then is among Input.Results, unless it is
	// settled. Zero: nobody asked.
	AsOf time.Time
	// MissingSince is since when answers cannot be had in full: the stream, or the object store
	// with the output of one, cannot be asked. Zero: they can, as far as is known.
	MissingSince time.Time
	Cause        string // why they cannot be had
}

// PatienceEnd is until when time-outs wait for answers; zero: there is no telling.
func (a *Answers) PatienceEnd() time.Time {
	if a.MissingSince.IsZero() {
		return time.Time{}
	}
	return a.MissingSince.Add(answerPatience)
}

// Cover says whether every result that was stored by a moment is known.
func (a *Answers) Cover(at time.Time) bool { return !at.After(a.AsOf) }

// GivenUp says whether answers could not be had for so long that time-outs do without.
func (a *Answers) GivenUp(now time.Time) bool {
	end := a.PatienceEnd()
	return !end.IsZero() && !now.Before(end)
}
