// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"fmt"
	"slices"
	"strings"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// NATS is what a user of NATS may do.
type NATS struct{ Publish, Subscribe []string }

// Operator is for replicas of the operator.
func Operator(n protocol.Names) NATS {
	jobs, results, payloads := n.JobsStream(), n.ResultsStream(), n.PayloadsStream()
	streams := []string{jobs, results, n.DeadLettersStream(), n.ControlStream(), payloads}
	publish := []string{
		n.Prefix + ".jobs.>", n.Prefix + ".control.*", n.Prefix + ".deadletters.>",
		"$O." + n.PayloadsBucket() + ".>",
		"$JS.ACK." + results + ".>",
	}
	for _, verb := range []string{"INFO", "CREATE", "UPDATE", "MSG.GET"} {
		publish = append(publish, each("$JS.API.STREAM."+verb+".", "", streams...)...)
	}
	publish = append(publish, "$JS.API.STREAM.MSG.DELETE."+jobs, "$JS.API.STREAM.PURGE."+payloads, "$JS.API.CONSUMER.MSG.NEXT."+results+".*")
	for _, verb := range []string{"CREATE", "DELETE", "INFO"} {
		publish = append(publish, each("$JS.API.CONSUMER."+verb+".", ".>", jobs, results)...)
	}
	publish = append(publish, each("$JS.API.CONSUMER.NAMES.", "", jobs, results)...)
	publish = append(publish, each("$JS.API.CONSUMER.LIST.", "", jobs, results)...)
	publish = append(publish, "$JS.API.CONSUMER.CREATE."+payloads+".>", "$JS.API.CONSUMER.DELETE."+payloads+".>", "$JS.FC."+payloads+".>",
		"$JS.API.DIRECT.GET."+payloads, "$JS.API.DIRECT.GET."+payloads+".>")
	return NATS{Publish: publish, Subscribe: []string{"_INBOX.>"}}
}

// Worker is for workers that do the jobs of some topics; without a topic, of all.
func Worker(n protocol.Names, topics ...string) NATS {
	durables := []string{"*"}
	if len(topics) > 0 {
		durables = nil
		for _, t := range topics {
			durables = append(durables, protocol.Durable(t))
		}
	}
	publish := []string{n.Prefix + ".results.>"}
	for _, d := range durables {
		publish = append(publish, "$JS.API.CONSUMER.INFO."+n.JobsStream()+"."+d,
			"$JS.API.CONSUMER.MSG.NEXT."+n.JobsStream()+"."+d, "$JS.ACK."+n.JobsStream()+"."+d+".>")
	}
	publish = append(publish, "$O."+n.PayloadsBucket()+".>", "$JS.API.STREAM.INFO."+n.PayloadsStream(),
		"$JS.API.DIRECT.GET."+n.PayloadsStream(), "$JS.API.DIRECT.GET."+n.PayloadsStream()+".>")
	return NATS{Publish: publish, Subscribe: []string{n.Prefix + ".control.*", "_INBOX.>"}}
}

// Confined is for workers of some topics that are not to be trusted with what is of others: at
// least one. They have no object store, in which nothing says of which topic an output is, so their
// outputs are at most protocol.MaxInlineOutputBytes. And they have an inbox of their own, since
// jobs come to the inbox of who asked for them.
func Confined(n protocol.Names, inbox string, topics ...string) NATS {
	may := Worker(n, topics...)
	may.Publish = slices.DeleteFunc(may.Publish, func(s string) bool {
		return strings.Contains(s, n.PayloadsStream()) || strings.HasPrefix(s, "$O.")
	})
	may.Subscribe = []string{n.Prefix + ".control.*", inbox + ".>"}
	return may
}

// User is one user of an account.
type User struct {
	Name     string
	Password string // as the configuration has it: quoted text, a bcrypt hash, or $VARIABLE
	May      NATS
}

// Account writes an account with JetStream as a nats-server's configuration has it.
func Account(name string, users ...User) string {
	var b strings.Builder
	b.WriteString("accounts {\n")
	account(&b, name, "    jetstream: enabled\n", users)
	b.WriteString("}\n")
	return b.String()
}

// WithAdmin writes the same with two users for people, who share a password: "admin" may do
// everything in the account, and "system" asks servers how they are, which only the
// system account may. It asks all of them at once: subjects of one server's ID also
// end connections.
func WithAdmin(password, name string, users ...User) string {
	everything := NATS{Publish: []string{">"}, Subscribe: []string{">"}}
	ask := NATS{Publish: []string{"$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.>"}, Subscribe: []string{"_INBOX.>"}}
	var b strings.Builder
	b.WriteString("accounts {\n")
	account(&b, name, "    jetstream: enabled\n", append(slices.Clip(users), User{Name: "admin", Password: password, May: everything}))
	account(&b, "$SYS", "", []User{{Name: "system", Password: password, May: ask}})
	b.WriteString("}\n")
	return b.String()
}

func account(b *strings.Builder, name, settings string, users []User) {
	fmt.Fprintf(b, "  %s {\n%s    users: [\n", name, settings)
	for _, u := range users {
		fmt.Fprintf(b, "      {\n        user: %q, password: %s\n        permissions: {\n", u.Name, u.Password)
		list(b, "publish", u.May.Publish)
		list(b, "subscribe", u.May.Subscribe)
		b.WriteString("        }\n      }\n")
	}
	b.WriteString("    ]\n  }\n")
}

func list(b *strings.Builder, verb string, subjects []string) {
	fmt.Fprintf(b, "          %s: {allow: [\n", verb)
	for _, s := range subjects {
		fmt.Fprintf(b, "            %q\n", s)
	}
	b.WriteString("          ]}\n")
}

func each(before, after string, names ...string) []string {
	all := make([]string, len(names))
	for i, n := range names {
		all[i] = before + n + after
	}
	return all
}
