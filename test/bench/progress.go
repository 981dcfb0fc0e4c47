package main

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows on stderr how far a measurement is: a bar on a terminal, else one line when it begins.
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
