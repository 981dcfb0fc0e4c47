// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/buildinfo"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// Env is what the commands take from the process.
type Env struct {
	Out, Err io.Writer
	Color    bool // Out is a terminal that takes colours
	Clock    clock.PassiveClock
	Getenv   func(string) string
	Build    buildinfo.Info

	// Cluster gives the API server and the namespace asked for; nil: as kubeconfig and flags say.
	Cluster func() (client.Client, string, error)
	// Config is how to connect to it, and the namespace; nil: likewise. check and console use it.
	Config func() (*rest.Config, string, error)
}

// app is one call of the plugin.
type app struct {
	Env
	nats natsFlags
}

// note tells something that is not the answer.
func (a *app) note(format string, values ...any) { fmt.Fprintf(a.Err, format+"\n", values...) }

// writeJSON writes a value in lines. They are not made as a whole: a body in it may be nested deep.
func (a *app) writeJSON(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	out := bufio.NewWriter(a.Out)
	for line := range runview.JSONLines(bytes.TrimSpace(b.Bytes())) {
		escape(out, line)
		_ = out.WriteByte('\n')
	}
	return out.Flush()
}
