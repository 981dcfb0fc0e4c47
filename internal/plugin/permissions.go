// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/syncopate-dev/syncopate/internal/rights"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const workerPassword = "$NATS_WORKER_PASSWORD" //nolint:gosec // a variable of the server

// inboxPrefix is one that no other has in its name, or in that of its account.
var inboxPrefix = regexp.MustCompile(`^_INBOX_([A-Za-z0-9-]+)$`)

// A topic is as a step may name it.
var topicPattern = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*$`)

const maxTopicLength = 100

func permissionsCommand(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use: "permissions", Short: "Print what the users of NATS and Redis need, as the servers read it",
		Long: "Print what the users of NATS and Redis need, as the servers read it. No cluster is asked.",
	}, natsPermissionsCommand(a), redisPermissionsCommand(a))
}

func natsPermissionsCommand(a *app) *cobra.Command {
	var prefix, account, inbox string
	var topics []string
	var admin bool
	cmd := &cobra.Command{
		Use: "nats", Short: "Print an account of a nats-server with an operator and a worker", Args: args(cobra.NoArgs),
		Long: `Print an account of a nats-server with a user of the operator and one of workers, each with the rights that it needs and no more. Include it in the
configuration of each server; the passwords are those of the server's environment, or write hashes of them (nats server passwd) in their place.

A password in the environment begins with a letter: nats-server reads the text of a variable as configuration, and one that begins with a digit may be
taken for a number. Then it does not start.

With --confined the worker has an account of its own, named after its inbox, as SYNCOPATE_mail, and no other user may be in it. For one
more such worker add its account alone: what the first account exports is the same for all. Give its user another name, and another
variable. Then restart each server: one that reads its configuration again serves a new account only the second time.
Such a worker has no object store, and has to be told so, or it waits for it with each output over 64 KiB: worker.Options.NoObjectStore
in Go, NO_OBJECT_STORE=1 for the samples in Python and Node.

With --admin there are two users for people, with one password: admin may do everything in the account, as to remove a stream, and system, of the
system account, may ask all servers how they are, as nats server report jetstream does, and may change nothing.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkTopics(topics, cmd.Flags().Changed("topics")); err != nil {
				return err
			}
			n := protocol.Names{Prefix: prefix}
			all := rights.Accounts{Name: account, Users: []rights.User{
				{Name: "operator", Password: "$NATS_OPERATOR_PASSWORD", May: rights.Operator(n)}, //nolint:gosec // a variable of the server
			}}
			if admin {
				all.AdminPassword = "$NATS_ADMIN_PASSWORD"
			}
			if !cmd.Flags().Changed("confined") {
				all.Users = append(all.Users, rights.User{Name: "worker", Password: workerPassword, May: rights.Worker(n, topics...)})
			} else {
				word := wordOf(inbox)
				if word == "" || len(topics) == 0 {
					return usagef("--confined %q: need an inbox prefix of its own, as _INBOX_mail, and --topics", inbox)
				}
				all.Confined = []rights.Confined{{
					Names: n, Account: account + "_" + word, User: "worker", Password: workerPassword, Topics: topics, Inbox: inbox,
				}}
			}
			fmt.Fprint(a.Out, all.Text())
			return nil
		},
	}
	cmd.Flags().StringVar(&prefix, "nats-prefix", protocol.DefaultPrefix, "First token of all subjects; in capitals the first word of the streams' names.")
	cmd.Flags().StringVar(&account, "account", "SYNCOPATE", "Name of the account.")
	cmd.Flags().StringSliceVar(&topics, "topics", nil, "Topics whose jobs the worker does, separated by commas; default all.")
	cmd.Flags().BoolVar(&admin, "admin", false, "Also users for people: admin in the account, and system in the system account. Their password is $NATS_ADMIN_PASSWORD.")
	cmd.Flags().StringVar(&inbox, "confined", "", "Inbox prefix of a worker that is not to be trusted with other topics, as _INBOX_mail: it has no object store, and its client needs that prefix.")
	return cmd
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
			fmt.Fprintf(a.Out, "user %s on >PASSWORD %s\n", user, strings.Join(rights.Redis(cluster), " "))
			return nil
		},
	}
	cmd.Flags().BoolVar(&cluster, "cluster", false, "The server is a node of a Redis Cluster.")
	cmd.Flags().StringVar(&user, "user", "syncopate", "Name of the user.")
	return cmd
}
