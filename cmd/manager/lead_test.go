// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/ownership"
)

// began tells that the one replica has begun.
type began chan struct{}

func (b began) TakeOver(context.Context, []int)          {}
func (b began) Gain(context.Context, []int)              { close(b) }
func (b began) Lose(context.Context, []int, func([]int)) {}

// With --ownership=leader the one that leads notes which Redis it uses, and those that stand by,
// which may have another one, do not.
//
// mutations: Named that is 1 for all, 0 for the leader, or 1 for it without a name, make this fail.
func TestWhoLeadsNotesItsRedis(t *testing.T) {
	o := options{ownership: "leader"}
	a := newAgreement(o)
	uses := func() int64 {
		use, err := a.naming().Named("any")
		if err != nil {
			t.Error(err)
		}
		return use
	}
	if a.all != nil || a.naming().Name() == "" || uses() != 0 {
		t.Errorf("before it is made: %+v, use %d", a, uses())
	}
	begins := make(began)
	alone := ownership.NewAlone(begins, 0)
	a.lead.owner.Store(alone)
	if uses() != 0 {
		t.Error("one that stands by notes its Redis")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- alone.Start(ctx) }()
	<-begins
	if uses() != 1 {
		t.Error("who leads does not note its Redis")
	}
	if use, err := a.naming().Named(""); use != 0 || err != nil {
		t.Errorf("of a Redis that takes no name it notes use %d, %v", use, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// mutation: Nameless that is the same for both makes this fail.
func TestOnlyWhoLeadsAloneNeedsNoName(t *testing.T) {
	for ownership, without := range map[string]bool{"leader": true, ownShards: false} {
		if of := gateOptions(options{leaderElect: true, ownership: ownership}, identity{}, nil, nil); of.Nameless != without {
			t.Errorf("%s: a Redis without a name is used: %v", ownership, of.Nameless)
		}
	}
}
