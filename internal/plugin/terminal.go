// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// maxErrorLine is how much of an error is told.
const maxErrorLine = 8192

// OneLine is an error for a terminal, in one line. It may quote what workers and other users wrote.
func OneLine(err error) string {
	return strings.Join(strings.Fields(runview.Printable(err.Error(), maxErrorLine)), " ")
}

// escaped is JSON for a terminal: what would command it, or turn the direction of a line, is
// escaped. The values stay as they are, since such characters are in strings only.
func escaped(json []byte) string {
	var b strings.Builder
	for _, r := range string(json) {
		switch {
		case r == '\n' || r == '\t' || r == '\r' || !commands(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func commands(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// escaping writes JSON escaped. Each write has whole characters, as those of json.Encoder have.
type escaping struct{ to io.Writer }

func (e escaping) Write(json []byte) (int, error) {
	if _, err := io.WriteString(e.to, escaped(json)); err != nil {
		return 0, err
	}
	return len(json), nil
}
