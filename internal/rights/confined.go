// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"fmt"
	"slices"
	"strings"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Confined is the user of workers of some topics that are not to be trusted with what is of others.
//
// It has an account of its own. NATS asks for the right to publish to a subject, and for none to
// have the answer arrive at another: a user of the installation's account has the server send an
// error, which has no body, to the subject that purges or deletes a stream. An account imports
// subjects as services, and the answer of a service comes to the account that asked. So no other
// user may be in that account.
type Confined struct {
	Names          protocol.Names
	Account        string
	User, Password string   // as those of a User
	Topics         []string // at least one
	Inbox          string   // prefix of the inbox of its clients
}

// may has no object store, in which nothing says of which topic an output is. So its outputs are at
// most protocol.MaxInlineOutputBytes.
func (c Confined) may() NATS {
	may := Worker(c.Names, c.Topics...)
	may.Publish = slices.DeleteFunc(may.Publish, func(s string) bool {
		return strings.Contains(s, c.Names.PayloadsStream()) || strings.HasPrefix(s, "$O.")
	})
	may.Subscribe = []string{c.Names.Control("*"), c.Inbox + ".>"}
	return may
}

// imports are what the user may publish, as services, and cancellation.
func (c Confined) imports(from string) string {
	var b strings.Builder
	b.WriteString("    imports: [\n")
	for _, s := range c.may().Publish {
		fmt.Fprintf(&b, "      {service: {account: %q, subject: %q}}\n", from, s)
	}
	fmt.Fprintf(&b, "      {service: {account: %q, subject: %q}, to: \"$JS.API.INFO\"}\n", from, nowhere(c.Names))
	fmt.Fprintf(&b, "      {stream: {account: %q, subject: %q}}\n    ]\n", from, c.Names.Control("*"))
	return b.String()
}

// exports are the same for all topics, so that one more confined worker changes nothing here. Which
// of them an account has is in its imports.
func (a Accounts) exports() string {
	n := a.Names
	switch {
	case n.Prefix != "":
	case len(a.Confined) > 0:
		n = a.Confined[0].Names
	default:
		return ""
	}
	consumer := n.JobsStream() + ".*"
	var b strings.Builder
	b.WriteString("    exports: [\n")
	fmt.Fprintf(&b, "      {service: %q}\n", "$JS.API.CONSUMER.INFO."+consumer)
	// A pull has as many answers as jobs.
	fmt.Fprintf(&b, "      {service: %q, response_type: stream}\n", "$JS.API.CONSUMER.MSG.NEXT."+consumer)
	for _, s := range acks(n.JobsStream(), "*") {
		fmt.Fprintf(&b, "      {service: %q}\n", s)
	}
	fmt.Fprintf(&b, "      {service: %q}\n", n.Prefix+".results.>")
	fmt.Fprintf(&b, "      {service: %q}\n", nowhere(n))
	fmt.Fprintf(&b, "      {stream: %q}\n    ]\n", n.Control("*"))
	return b.String()
}

// nowhere is where nobody listens. An account without JetStream answers each request of its API
// with an error, beside the answer of what it imports, unless $JS.API.INFO is among that.
func nowhere(n protocol.Names) string { return n.Prefix + ".nowhere" }
