// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const deadLettersHelp = `List, show and redrive messages that were put aside.

A result that can never be applied, or that failed too often, is kept for 14 days in the stream of dead letters, with its bytes,
its headers and the reason. Dead letters are in NATS, so these commands connect to it. For a NATS inside the cluster:

  kubectl -n nats port-forward svc/nats 4222:4222

docs/kubectl-plugin.md lists the permissions that they need. Without --nats-url they use $NATS_URL, if that is set. User and password come
from $NATS_USER and $NATS_PASSWORD.`

// natsFlags are those of the operator that say where NATS is.
type natsFlags struct{ url, prefix, creds, ca, cert, key string }

// flagURL is the name of the flag that says where NATS is.
const flagURL = "nats-url"

// defaultURL is where NATS is if neither a flag nor the environment says so. What the environment
// says is no default of the flag: help would print it, and it may have a password.
const defaultURL = "nats://127.0.0.1:4222"

func (f *natsFlags) bind(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.url, flagURL, "", "NATS servers, separated by commas; none: $NATS_URL, else "+defaultURL+".")
	flags.StringVar(&f.prefix, "nats-prefix", protocol.DefaultPrefix, "First token of all subjects; in capitals the first word of the streams' names.")
	flags.StringVar(&f.creds, "nats-creds", "", "NATS credentials file. User and password may be given by $NATS_USER and $NATS_PASSWORD instead.")
	flags.StringVar(&f.ca, "nats-ca", "", "CA certificates to verify NATS with.")
	flags.StringVar(&f.cert, "nats-cert", "", "Client certificate for NATS.")
	flags.StringVar(&f.key, "nats-key", "", "Key of the client certificate for NATS.")
}

func (a *app) names() protocol.Names { return protocol.Names{Prefix: a.nats.prefix} }

// letters connects to the dead letters.
func (a *app) letters(ctx context.Context) (*deadletters.Store, error) {
	return deadletters.Open(ctx, a.nats.config(a.Getenv))
}

func (f *natsFlags) config(getenv func(string) string) bus.Config {
	return bus.Config{
		URL: cmp.Or(f.url, getenv("NATS_URL"), defaultURL), Names: protocol.Names{Prefix: f.prefix}, CredentialsFile: f.creds, CAFile: f.ca, CertFile: f.cert, KeyFile: f.key,
		User: getenv("NATS_USER"), Password: getenv("NATS_PASSWORD"),
	}
}
