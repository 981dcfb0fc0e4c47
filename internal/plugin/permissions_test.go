// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	t.Setenv("NATS_WORKER_MAIL_PASSWORD", password)
	t.Setenv("NATS_ADMIN_PASSWORD", password)
	p := newPlugin(t)
	if help := p.must("permissions", "nats", "--help"); !strings.Contains(help, "begins with a letter") {
		t.Errorf("the help says nothing about passwords:\n%s", help)
	}
	for _, c := range []struct {
		args []string
		want map[string]int // users of accounts
	}{
		{args: []string{"permissions", "nats"}, want: map[string]int{"SYNCOPATE": 2}},
		{args: []string{"permissions", "nats", "--admin"}, want: map[string]int{"SYNCOPATE": 3, "$SYS": 1}},
		{
			args: []string{"permissions", "nats", "--confined", "_INBOX_mail", "--topics", "mail.send", "--admin"},
			want: map[string]int{"SYNCOPATE": 3, "SYNCOPATE_mail": 1, "$SYS": 1},
		},
	} {
		printed := p.must(c.args...)
		if _, confined := c.want["SYNCOPATE_mail"]; confined != strings.Contains(printed, "NO_OBJECT_STORE=1") {
			t.Errorf("whether a worker has to be told that it has no object store:\n%s", printed)
		}
		read, err := conf.Parse(printed)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		accounts, _ := read["accounts"].(map[string]any)
		for name, a := range accounts {
			account, _ := a.(map[string]any)
			users, _ := account["users"].([]any)
			got[name] = len(users)
			for _, u := range users {
				if user, _ := u.(map[string]any); user["password"] != password {
					t.Errorf("a password is read as %v", user["password"])
				}
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("users of accounts (-want +got):\n%s\nin\n%s", diff, printed)
		}
	}
}

// mutation: a confined worker of all topics, or one that has the inbox of all, makes this fail.
func TestPermissionsOfAConfinedWorkerNeedTopicsAndAnInbox(t *testing.T) {
	p := newPlugin(t)
	for _, c := range []struct{ inbox, topics string }{
		{inbox: "_INBOX_mail"},
		{inbox: "", topics: "mail.send"}, // a variable of a shell that is not set
		{inbox: "_INBOX", topics: "mail.send"},
		{inbox: "_INBOX.", topics: "mail.send"},
		{inbox: "_INBOX_>", topics: "mail.send"},
		{inbox: "_INBOX_a_b", topics: "mail.send"}, // two of them would have one account, and the server takes the last
		{inbox: "_INBOX_a.b", topics: "mail.send"},
		{inbox: `_INBOX_"`, topics: "mail.send"},
	} {
		if _, _, err := p.call("permissions", "nats", "--confined", c.inbox, "--topics", c.topics); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// Without topics the worker has the rights to all of them: a variable of a shell that is not set
// must not give them.
//
// mutations: no look at topics that are given, and one at their number alone, make this fail.
func TestPermissionsOfTopicsThatCanNotBe(t *testing.T) {
	p := newPlugin(t)
	for _, topics := range []string{"", ",", "Mail.Send", "mail.send,", "mail.*", ">", "mail..send", strings.Repeat("a", 101)} {
		out, _, err := p.call("permissions", "nats", "--topics", topics)
		if _, usage := errors.AsType[*UsageError](err); !usage || out != "" {
			t.Errorf("--topics %q: %v", topics, err)
		}
	}
	for _, topics := range []string{"mail.send,gpu-2", strings.Repeat("a", 100)} {
		p.must("permissions", "nats", "--topics", topics)
	}
}
