// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/conf"
)

// What is printed is what a server reads, with passwords of its environment that begin with a
// letter, as the help says: one of digits is no text to a server.
// mutation: the sentence about passwords taken from the help makes this fail; so do passwords in
// quotation marks, which no server looks up.
func TestPermissionsOfNATSTakePasswordsThatBeginWithALetter(t *testing.T) {
	const password = "n123456789012345678901234"
	t.Setenv("NATS_OPERATOR_PASSWORD", password)
	t.Setenv("NATS_WORKER_PASSWORD", password)
	p := newPlugin(t)
	if help := p.must("permissions", "nats", "--help"); !strings.Contains(help, "begins with a letter") {
		t.Errorf("the help says nothing about passwords:\n%s", help)
	}
	printed := p.must("permissions", "nats")
	read, err := conf.Parse(printed)
	if err != nil {
		t.Fatal(err)
	}
	accounts, _ := read["accounts"].(map[string]any)
	account, _ := accounts["SYNCOPATE"].(map[string]any)
	users, _ := account["users"].([]any)
	for _, u := range users {
		if user, _ := u.(map[string]any); user["password"] != password {
			t.Errorf("a password is read as %v", user["password"])
		}
	}
	if len(users) != 2 {
		t.Errorf("%d users in\n%s", len(users), printed)
	}
}
