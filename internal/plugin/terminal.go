// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// maxErrorLine is how much of an error is told.
const maxErrorLine = 8192

// OneLine is an error for a terminal, in one line. It may quote what workers and other users wrote.
func OneLine(err error) string { return oneLine(err.Error()) }

// oneLine is a text that quotes others, for a terminal.
func oneLine(text string) string {
	return strings.Join(strings.Fields(runview.Printable(text, maxErrorLine)), " ")
}

// escape writes JSON for a terminal: what would command it, or turn the direction of a line, is
// escaped. The values stay as they are, since such characters are in strings only, and every reader
// of JSON takes a byte that is no UTF-8 for U+FFFD. Flush of the writer says what went wrong.
func escape(out *bufio.Writer, json []byte) {
	for len(json) > 0 {
		r, size := utf8.DecodeRune(json)
		switch {
		case r == utf8.RuneError && size == 1: // a terminal may take the byte for a command
			_, _ = out.WriteString(`\ufffd`)
		case r == '\n' || r == '\t' || r == '\r' || !commands(r):
			_, _ = out.Write(json[:size])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(out, `\u%04x`, r)
		}
		json = json[size:]
	}
}

func commands(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}
