// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/internal/rights"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// permission is what a NATS user may publish: all, if Allow is empty.
type permission struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// whoAmI is where a server says who a connection is.
const whoAmI = "$SYS.REQ.USER.INFO"

// user asks NATS who this connection is, and what it may publish.
func user(ctx context.Context, nc *nats.Conn, names protocol.Names) check.User {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	answer, err := nc.RequestWithContext(ctx, whoAmI, nil)
	if err != nil {
		return check.User{Unread: check.Unread{Why: "ask NATS about the user: " + err.Error(), Hint: "it takes the permission to publish to " + whoAmI}}
	}
	var said struct {
		Data struct {
			User        string `json:"user"`
			Permissions *struct {
				Publish *permission `json:"publish"`
			} `json:"permissions"`
		} `json:"data"`
	}
	if err := json.Unmarshal(answer.Data, &said); err != nil {
		return check.User{Unread: check.Unread{Why: "ask NATS about the user: " + err.Error()}}
	}
	u := check.User{Name: said.Data.User}
	if u.Name == "" {
		u.Name = "the default user"
	}
	if said.Data.Permissions == nil || said.Data.Permissions.Publish == nil {
		return u
	}
	for _, subject := range published(names) {
		if !said.Data.Permissions.Publish.allows(subject) {
			u.Missing = append(u.Missing, subject)
		}
	}
	return u
}

// published are examples of what the operator publishes to: one for each of its rights.
func published(names protocol.Names) []string {
	subjects := slices.Clone(rights.Operator(names).Publish)
	for i, s := range subjects {
		subjects[i] = strings.NewReplacer("*", "x", ">", "x").Replace(s)
	}
	return subjects
}

func (p permission) allows(subject string) bool {
	for _, d := range p.Deny {
		if covers(d, subject) {
			return false
		}
	}
	for _, a := range p.Allow {
		if covers(a, subject) {
			return true
		}
	}
	return len(p.Allow) == 0
}

// covers says whether a subject with wildcards has another one in it.
func covers(pattern, subject string) bool {
	have := strings.Split(subject, ".")
	for i, token := range strings.Split(pattern, ".") {
		switch {
		case token == ">":
			return i < len(have)
		case i >= len(have), token != "*" && token != have[i]:
			return false
		}
	}
	return len(strings.Split(pattern, ".")) == len(have)
}
