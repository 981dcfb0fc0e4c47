// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The limit of a wait may end while the API server owes the answer to a question. If that was the
// first one, nobody knows how things are; after an answer, that counts.
//
// mutation: a wait that forgets each question which its limit cut short makes the first case fail,
// one that remembers each makes the second one fail.
func TestUntil_ALimitThatCutsAQuestionShort(t *testing.T) {
	for name, c := range map[string]struct {
		answers int // questions that are answered before one hangs
		want    error
	}{
		"the first one": {0, context.DeadlineExceeded},
		"a later one":   {1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				late, err := until(t.Context(), pollEvery+time.Second, func(ctx context.Context) (bool, error) {
					if asked++; asked <= c.answers {
						return false, nil
					}
					<-ctx.Done()
					return false, ctx.Err()
				})
				if !late || !errors.Is(err, c.want) || asked != c.answers+2 { // the last one is after the limit
					t.Errorf("late %t after %d questions: %v", late, asked, err)
				}
			})
		})
	}
}

// mutation: a wait that does not ask once more when its limit is over makes this fail.
func TestUntil_WhatIsDoneInTheLastPauseIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		late, err := until(t.Context(), 5*time.Minute, func(context.Context) (bool, error) {
			return time.Since(begun) >= 5*time.Minute-time.Second, nil
		})
		if late || err != nil {
			t.Errorf("late %t, %v", late, err)
		}
	})
}

// Some thousand waits of hours ask the API server for as many large runs, all the time.
//
// mutations: questions as often as at first, or never as often as that, makes this fail.
func TestUntil_AsksLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, early, all := time.Now(), 0, 0
		late, err := until(t.Context(), 5*time.Minute, func(context.Context) (bool, error) {
			if all++; time.Since(begun) <= 5*time.Second {
				early++
			}
			return false, nil
		})
		if !late || err != nil || early < 20 || all >= 100 || all < 60 {
			t.Errorf("late %t, %v; %d questions, %d of them in the first seconds", late, err, all, early)
		}
	})
}
