// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/conf"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
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

// What is printed is what the servers read, and what the operator takes.
//
// mutations: no look at a prefix, an account or a user, and one that takes what a server or the
// operator refuses, make this fail.
func TestPermissionsOfNamesThatCanNotBe(t *testing.T) {
	t.Setenv("NATS_OPERATOR_PASSWORD", "o")
	t.Setenv("NATS_WORKER_PASSWORD", "w")
	p := newPlugin(t)
	for _, flag := range []string{
		"nats --nats-prefix=", "nats --nats-prefix=A.b", "nats --nats-prefix=Syncopate", "nats --nats-prefix=a.b", "nats --nats-prefix=*", "nats --nats-prefix=" + strings.Repeat("a", 33),
		"nats --account=", "nats --account=a b", "nats --account=a{", `nats --account="`, "nats --account=$G", "nats --account=#", "nats --account=include", "nats --account=INCLUDE", "nats --account=a\nb",
		"redis --user=", "redis --user=a b", "redis --user=a\nb", `redis --user="a`, "redis --user=#a",
	} {
		of, flag, _ := strings.Cut(flag, " ")
		name, _, _ := strings.Cut(flag, "=")
		out, _, err := p.call("permissions", of, flag)
		if _, usage := errors.AsType[*UsageError](err); !usage || out != "" || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v, printed %q", flag, err, out)
		}
	}
	for _, names := range []struct{ prefix, account string }{
		{"a", "a"}, {"team-7", "Team_7-x"}, {strings.Repeat("a", 32), "7"}, {"1", "includes"}, {"-", "-"}, {"0", "_"}, {"s", "true"},
	} {
		read, err := conf.Parse(p.must("permissions", "nats", "--nats-prefix", names.prefix, "--account", names.account))
		if err != nil {
			t.Fatalf("%+v: %v", names, err)
		}
		accounts, _ := read["accounts"].(map[string]any)
		if account, _ := accounts[names.account].(map[string]any); len(accounts) != 1 || account["jetstream"] != "enabled" {
			t.Errorf("%+v is read as %v", names, accounts)
		}
		if _, _, err := bus.Dial(t.Context(), bus.Config{URL: "nats://127.0.0.1:1", Names: protocol.Names{Prefix: names.prefix}}); !errors.Is(err, bus.ErrUnreachable) {
			t.Errorf("%+v: %v", names, err)
		}
	}
	for _, user := range []string{"a", "Team_7-x", "default", "on", "team.app@x"} {
		if out := p.must("permissions", "redis", "--user", user); !strings.HasPrefix(out, "user "+user+" on >PASSWORD ") {
			t.Errorf("%q is printed as %s", user, out)
		}
	}
}
