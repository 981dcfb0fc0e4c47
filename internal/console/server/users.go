// SPDX-License-Identifier: Apache-2.0

package server

import "sync"

// users counts what goes on at a time, of all users and of each.
type users struct {
	most, mostOfOne int

	mu     sync.Mutex
	all    int
	byUser map[string]int
}

func newUsers(most, mostOfOne int) *users {
	return &users{most: most, mostOfOne: mostOfOne, byUser: map[string]int{}}
}

// enter says whether there is room for one more of a user. leave must be called if so.
func (u *users) enter(user string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all >= u.most || u.byUser[user] >= u.mostOfOne {
		return false
	}
	u.all++
	u.byUser[user]++
	return true
}

func (u *users) leave(user string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all--
	if u.byUser[user]--; u.byUser[user] == 0 {
		delete(u.byUser, user)
	}
}
