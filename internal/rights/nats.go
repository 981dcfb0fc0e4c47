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
		"$SYS.REQ.USER.INFO", // kubectl syncopate check asks who it is: a server tells a user of himself only
	}
	publish = append(publish, acks(results, "*")...)
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
		"$JS.FC.*.*."+payloads+".>", "$JS.API.DIRECT.GET."+payloads, "$JS.API.DIRECT.GET."+payloads+".>")
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
			"$JS.API.CONSUMER.MSG.NEXT."+n.JobsStream()+"."+d)
		publish = append(publish, acks(n.JobsStream(), d)...)
	}
	publish = append(publish, "$O."+n.PayloadsBucket()+".>", "$JS.API.STREAM.INFO."+n.PayloadsStream(),
		"$JS.API.DIRECT.GET."+n.PayloadsStream(), "$JS.API.DIRECT.GET."+n.PayloadsStream()+".>")
	return NATS{Publish: publish, Subscribe: []string{n.Prefix + ".control.*", "_INBOX.>"}}
}

// acks are the subjects of acks of a consumer: those of now, and those that NATS 2.14 has beside
// them and that are to come, with a domain and an account before the stream. A short one has fewer
// words than the long ones here, so none of another consumer's is among these.
func acks(stream, durable string) []string {
	consumer := stream + "." + durable
	return []string{"$JS.ACK." + consumer + ".>", "$JS.ACK.*.*." + consumer + ".*.*.*.*.>"}
}

// User is one user of an account.
type User struct {
	Name     string
	Password string // as the configuration has it: quoted text, a bcrypt hash, or $VARIABLE
	May      NATS
}

// Account writes an account with JetStream as a nats-server's configuration has it.
func Account(name string, users ...User) string { return Accounts{Name: name, Users: users}.Text() }

// Accounts are those of an installation.
type Accounts struct {
	Name     string // of the account with JetStream
	Users    []User // of that account
	Confined []Confined
	// Names are those of what confined workers import, also of such as are added later; default
	// those of the first one. Without either nothing is exported.
	Names protocol.Names
	// AdminPassword is of two users for people: "admin" may do everything in the account, and
	// "system" asks servers how they are, which only the system account may. It asks all of them at
	// once: subjects of one server's ID also end connections. Without a password there are none.
	AdminPassword string
}

// Text writes the accounts as a nats-server's configuration has them.
func (a Accounts) Text() string {
	users := slices.Clip(a.Users)
	if a.AdminPassword != "" {
		everything := NATS{Publish: []string{">"}, Subscribe: []string{">"}}
		users = append(users, User{Name: "admin", Password: a.AdminPassword, May: everything})
	}
	var b strings.Builder
	b.WriteString("accounts {\n")
	account(&b, a.Name, "    jetstream: enabled\n"+a.exports(), users)
	for _, c := range a.Confined {
		// NATS does not say that a right is missing in a way that a worker could tell
		// from an outage.
		b.WriteString("  # Its worker has no object store. Tell it: NoObjectStore of the SDK, NO_OBJECT_STORE=1 for the samples in Python and Node.\n")
		account(&b, c.Account, c.imports(a.Name), []User{{Name: c.User, Password: c.Password, May: c.may()}})
	}
	if a.AdminPassword != "" {
		ask := NATS{Publish: []string{"$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.>"}, Subscribe: []string{"_INBOX.>"}}
		account(&b, "$SYS", "", []User{{Name: "system", Password: a.AdminPassword, May: ask}})
	}
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
