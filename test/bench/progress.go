// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/syncopate-dev/syncopate/test/hostile"
)

// progress shows on stderr how far a measurement is: a bar on a terminal, else one line
// when it begins.
func progress(what string, total int) *progressbar.ProgressBar {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		fmt.Fprintf(os.Stderr, "%s: %d\n", what, total)
		return progressbar.DefaultSilent(int64(total))
	}
	return progressbar.NewOptions(total,
		progressbar.OptionSetDescription(what), progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(), progressbar.OptionThrottle(200*time.Millisecond), progressbar.OptionClearOnFinish(),
	)
}

// progressLine tells on stderr what came of a kind of harm.
func progressLine(name string, without, with hostile.Latencies, sc *hostile.Scene, found hostile.Finding) {
	killed, ended := sc.Operators.Deaths()
	fmt.Fprintf(os.Stderr, "%s: without %s; beside %s; operator %.0f MiB, %d killed, %d ended badly\n", name, without, with, sc.Operators.Peak(), killed, ended)
	for _, what := range append(found.Lost, found.Twice...) {
		fmt.Fprintln(os.Stderr, "  ", what)
	}
}
