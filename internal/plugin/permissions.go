// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/rights"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// inboxPrefix is one that no other has in its name, or in that of its account. It has no capitals:
// the variable of the password has nothing else.
var inboxPrefix = regexp.MustCompile(`^_INBOX_([a-z0-9-]+)$`)

// A topic is as a step may name it.
var topicPattern = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*$`)

const maxTopicLength = 100

var (
	// accountPattern is what a nats-server reads as one word; include, in any case, is a
	// command to it.
	accountPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	// userPattern is what Redis reads as one word of a line of an ACL file.
	userPattern = regexp.MustCompile(`^[A-Za-z0-9_.@-]+$`)
)

func permissionsCommand(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use: "permissions", Short: "Print what the users of NATS and Redis need, as the servers read it",
		Long: "Print what the users of NATS and Redis need, as the servers read it. No cluster is asked.",
	}, natsPermissionsCommand(a), redisPermissionsCommand(a))
}

// natsPermissionsHelp is what --help says of permissions nats.
const natsPermissionsHelp = `Print an account of a nats-server with a user of the operator and one of workers, each with the rights that it needs and no more. Include it in the
configuration of each server; the passwords are those of the server's environment, or write hashes of them (nats server passwd) in their place.

A password in the environment begins with a letter: nats-server reads the text of a variable as configuration, and one that begins with a digit may be
taken for a number. Then it does not start.

With --confined there is also a worker of the topics that is not to be trusted with others. It has an account of its own, named after its inbox, as
SYNCOPATE_mail for _INBOX_mail, in which no other user may be: worker-mail, with the password $NATS_WORKER_MAIL_PASSWORD. The user worker does the jobs of all
topics then; leave it out where nobody uses it. For one more confined worker add its account alone: what the first account exports is the same for all. The
variable has to be in the servers' environment first. Then restart each server: one that reads its configuration again serves a new account only the second time.
Such a worker has no object store, and has to be told so, or it waits for it with each output over 64 KiB: worker.Options.NoObjectStore
in Go, NO_OBJECT_STORE=1 for the samples in Python and Node.

With --admin there are two users for people, with one password: admin may do everything in the account, as to remove a stream, and system, of the
system account, may ask all servers how they are, as nats server report jetstream does. It is meant to change nothing, but chooses where
answers arrive in that account, as every user does.`

func natsPermissionsCommand(a *app) *cobra.Command {
	var prefix, account, inbox string
	var topics []string
	var admin bool
	cmd := &cobra.Command{
		Use: "nats", Short: "Print an account of a nats-server with an operator and a worker", Args: args(cobra.NoArgs),
		Long: natsPermissionsHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(checkNames(prefix, account), checkTopics(topics, cmd.Flags().Changed("topics"))); err != nil {
				return err
			}
			n := protocol.Names{Prefix: prefix}
			worker := rights.User{Name: "worker", Password: "$NATS_WORKER_PASSWORD", May: rights.Worker(n, topics...)} //nolint:gosec // a variable of the server
			all := rights.Accounts{Name: account, Names: n}
			if cmd.Flags().Changed("confined") {
				confined, err := confinedWorker(n, account, inbox, topics)
				if err != nil {
					return err
				}
				worker.May = rights.Worker(n)
				all.Confined = []rights.Confined{confined}
			}
			all.Users = []rights.User{
				{Name: "operator", Password: "$NATS_OPERATOR_PASSWORD", May: rights.Operator(n)}, //nolint:gosec // a variable of the server
				worker,
			}
			if admin {
				all.AdminPassword = "$NATS_ADMIN_PASSWORD"
			}
			fmt.Fprint(a.Out, all.Text())
			return nil
		},
	}
	cmd.Flags().StringVar(&prefix, "nats-prefix", protocol.DefaultPrefix, "First token of all subjects; in capitals the first word of the streams' names.")
	cmd.Flags().StringVar(&account, "account", "SYNCOPATE", "Name of the account.")
	cmd.Flags().StringSliceVar(&topics, "topics", nil, "Topics whose jobs the worker does, or with --confined the confined one, separated by commas; default all.")
	cmd.Flags().BoolVar(&admin, "admin", false, "Also users for people: admin in the account, and system in the system account. Their password is $NATS_ADMIN_PASSWORD.")
	cmd.Flags().StringVar(&inbox, "confined", "", "Inbox prefix of one more worker, that is not to be trusted with other topics, as _INBOX_mail: it has no object store, and its client needs that prefix.")
	return cmd
}

// checkNames refuses names that a nats-server does not read, or that the operator does not take. An
// empty one is a variable of a shell that is not set.
func checkNames(prefix, account string) error {
	if err := bus.CheckPrefix(prefix); err != nil {
		return usagef("--nats-prefix: %w", err)
	}
	if !accountPattern.MatchString(account) || strings.EqualFold(account, "include") {
		return usagef("--account %q: need letters a-z and A-Z, digits, - and _, and not include, which is a command to nats-server", account)
	}
	return nil
}

// confinedWorker has its name, the variable of its password and its account after its inbox: beside
// others each is another one.
func confinedWorker(n protocol.Names, account, inbox string, topics []string) (rights.Confined, error) {
	word := wordOf(inbox)
	if word == "" || len(topics) == 0 {
		return rights.Confined{}, usagef("--confined %q: need an inbox prefix of its own, as _INBOX_mail, in lower case, and --topics", inbox)
	}
	variable := "$NATS_WORKER_" + strings.ToUpper(strings.ReplaceAll(word, "-", "_")) + "_PASSWORD"
	return rights.Confined{Names: n, Account: account + "_" + word, User: "worker-" + word, Password: variable, Topics: topics, Inbox: inbox}, nil
}

// checkTopics refuses topics that no job can have. None is all of them, but who names topics does
// not mean that.
func checkTopics(topics []string, given bool) error {
	if given && len(topics) == 0 {
		return usagef("--topics names no topic; for all leave it out")
	}
	for _, t := range topics {
		if len(t) > maxTopicLength || !topicPattern.MatchString(t) {
			return usagef("--topics %q: need words of a-z, 0-9 and dashes, joined by dots, at most %d characters", t, maxTopicLength)
		}
	}
	return nil
}

// wordOf is what an inbox prefix has beside the one of all clients, for the name of an account; "":
// it is none that may be.
func wordOf(inbox string) string {
	if found := inboxPrefix.FindStringSubmatch(inbox); found != nil {
		return found[1]
	}
	return ""
}

func redisPermissionsCommand(a *app) *cobra.Command {
	var cluster bool
	var user string
	cmd := &cobra.Command{
		Use: "redis", Short: "Print a line of an ACL file of Redis with the operator's user", Args: args(cobra.NoArgs),
		Long: "Print a line of an ACL file of Redis with the operator's user. Put its password, or the SHA-256 of it after a #, in the place of >PASSWORD.",
		RunE: func(*cobra.Command, []string) error {
			if !userPattern.MatchString(user) {
				return usagef("--user %q: need letters a-z and A-Z, digits, and signs of - _ . @", user)
			}
			fmt.Fprintf(a.Out, "user %s on >PASSWORD %s\n", user, strings.Join(rights.Redis(cluster), " "))
			return nil
		},
	}
	cmd.Flags().BoolVar(&cluster, "cluster", false, "The server is a node of a Redis Cluster.")
	cmd.Flags().StringVar(&user, "user", "syncopate", "Name of the user.")
	return cmd
}
