// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"html/template"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

var redirect = template.Must(template.New("").Parse(`<!doctype html><meta charset="utf-8"><title>Syncopate</title>
<meta http-equiv="refresh" content="0; url={{.}}"><a href="{{.}}">To the console</a>
`))

// open shows an address in the user's browser. The function it returns takes away what it left. The
// address has a secret, and other users of the machine can see the arguments of commands: so the
// browser gets a file that only its user can read, and that leads to the address.
func (a *app) open(ctx context.Context, address string) func() {
	dir, err := os.MkdirTemp("", "syncopate-console-") // for its owner only
	if err != nil {
		a.note("open the address by hand: %v", err)
		return func() {}
	}
	remove := func() { _ = os.RemoveAll(dir) } // nothing but a page of a console that is gone
	path := filepath.Join(dir, "console.html")
	if err := writeRedirect(path, address); err != nil {
		a.note("open the address by hand: %v", err)
		return remove
	}
	command := []string{"xdg-open", path}
	switch runtime.GOOS {
	case "darwin":
		command[0] = "open"
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", path}
	}
	// It may become the browser, which outlives the console.
	if err := exec.CommandContext(context.WithoutCancel(ctx), command[0], command[1:]...).Start(); err != nil { //nolint:gosec // constants, and a path of our own
		a.note("open the address by hand: %v", err)
	}
	return remove
}

func writeRedirect(path, address string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the error that matters is that of writing
	return redirect.Execute(f, address)
}
