// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/console/access"
	"github.com/syncopate-dev/syncopate/internal/console/cluster"
	"github.com/syncopate-dev/syncopate/internal/console/server"
)

const (
	localHost    = "127.0.0.1"
	maxPort      = 65535
	consoleQPS   = 50
	consoleBurst = 100
)

// console is what one call of console was told.
type console struct {
	*app
	port      int
	noBrowser bool
	operator  string
}

func (a *app) consoleCommand() *cobra.Command {
	o := &console{app: a}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Open a page in the browser that shows runs as they go on",
		Long: `Open a page in the browser that shows runs as they go on: their graphs, why they wait, and what became of them.

It is served by this command, until you end it, under your own kubeconfig: you see what you may see, and each action is yours in the API
server's audit log. Only this machine can reach it, and only who has the address: it has a random token. Treat it as a password.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.port < 0 || o.port > maxPort {
				return usagef("--port %d: need 0 to %d", o.port, maxPort)
			}
			return o.serve(cmd.Context())
		},
	}
	cmd.Flags().IntVar(&o.port, "port", 0, "Port of 127.0.0.1 to listen on; 0: any that is free.")
	cmd.Flags().BoolVar(&o.noBrowser, "no-browser", false, "Only print the address.")
	a.nats.bind(cmd)
	cmd.Flags().StringVar(&o.operator, "operator-namespace", operatorNamespace, "Namespace of the operator.")
	return cmd
}

// serve shows the console until ctx ends.
func (o *console) serve(ctx context.Context) error {
	config, namespace, err := o.Config()
	if err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = consoleQPS, consoleBurst
	config.Timeout = 0 // of watches, too; pages have bounds of their own
	view, err := cluster.NewView(config, nil, "")
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(localHost, strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer func() { _ = l.Close() }() // Serve closes it, too
	who := access.NewLocal(view)
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s, err := server.New(ctx, who, server.Options{
		Base: who.Base(), Hosts: []string{net.JoinHostPort(localHost, port), net.JoinHostPort("localhost", port)}, Namespace: namespace,
		Operator: o.operator, Letters: consoleLetters{o.app}, Clock: clock.RealClock{}, Log: o.note,
	})
	if err != nil {
		return err
	}
	defer s.Close()
	var warming sync.WaitGroup
	defer warming.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	warming.Go(func() { s.Warm(ctx, view) })
	address := "http://" + net.JoinHostPort(localHost, port) + who.Base() + "/runs"
	fmt.Fprintln(o.Out, address)
	if !o.noBrowser {
		defer o.open(ctx, address)()
	}
	return s.Serve(ctx, l)
}
