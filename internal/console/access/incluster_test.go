// SPDX-License-Identifier: Apache-2.0

package access

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

// mutation: forget that lets go of none, and As with kinds of its own for each user,
// make this fail.
func TestUsersWhoHaveLeftTakeNoMemory(t *testing.T) {
	const users, each = 500, 50 << 10
	clk := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	c, err := NewInCluster(&rest.Config{Host: "127.0.0.1:1"}, Options{Clock: clk})
	if err != nil {
		t.Fatal(err)
	}
	come := func(name string) {
		t.Helper()
		if _, err := c.view(authenticationv1.UserInfo{Username: name}); err != nil {
			t.Fatal(err)
		}
	}
	before := heap()
	for i := range users {
		come(fmt.Sprint("user-", i))
	}
	if grown := heap() - before; grown > users*each {
		t.Errorf("%d users take %d KiB, which is %d for each", users, grown>>10, grown>>10/users)
	}
	clk.SetTime(clk.Now().Add(viewFor - time.Second))
	come("user-0")
	clk.SetTime(clk.Now().Add(time.Second))
	come("user-new")
	if len(c.views) != 2 {
		t.Errorf("%d users are remembered, want the one who asked lately and the new one", len(c.views))
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
