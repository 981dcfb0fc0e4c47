// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const (
	maxBodyLines   = 200
	maxLineChars   = 2000
	maxLineBytes   = 4 * (maxLineChars + 1)
	maxHeaderChars = 1000
)

func (a *app) showCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "show SEQ",
		Short: "Show one dead letter: reason, original subject, headers, body",
		Long: `Show one dead letter: why it was put aside, where it was published, its headers and its body.

The token is hidden. A long body is cut; -o json has all of it that is kept: of a message that can never be applied the first 4 KiB.`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := output(format, formatText, formatJSON); err != nil {
				return err
			}
			sequences, err := sequencesOf(given)
			if err != nil {
				return err
			}
			d, err := lettersToRead(cmd.Context(), a)
			if err != nil {
				return err
			}
			defer d.Close()
			l, err := d.Get(cmd.Context(), sequences[0])
			if err != nil {
				return err
			}
			s := shown(a.describe(d, l, a.namesOf(cmd.Context(), []deadletters.Letter{l})), l)
			if format == formatJSON {
				return a.writeJSON(s)
			}
			return a.showText(s)
		},
	}
	a.nats.bind(cmd)
	bindOutput(cmd, &format, formatText)
	return cmd
}

func sequencesOf(given []string) ([]uint64, error) {
	var all []uint64
	for _, text := range given {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n == 0 {
			return nil, usagef("%q is no number of a dead letter; see kubectl syncopate dead-letters list", text)
		}
		all = append(all, n)
	}
	return all, nil
}

func (a *app) showText(s ShownLetter) error {
	var b strings.Builder
	field := func(name, value string) { fmt.Fprintf(&b, "%-12s%s\n", name, runview.Printable(value, maxHeaderChars)) }
	field("Sequence", fmt.Sprint(s.Sequence))
	field("Stored", fmt.Sprintf("%s (%s ago)", s.StoredAt.Format("2006-01-02T15:04:05Z07:00"), age(a.Clock.Now(), s.StoredAt)))
	field("Reason", s.Reason)
	field("Cause", s.Cause)
	field("Run", s.run())
	if s.Step != "" {
		field("Step", fmt.Sprintf("%s, attempt %d", s.Step, s.Attempt))
	}
	field("Subject", s.Subject)
	field("Deliveries", fmt.Sprint(s.Deliveries))
	if s.Refused != "" {
		field("Redrive", "refused: "+s.Refused)
	}
	fmt.Fprintln(&b, "Headers")
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		for _, value := range s.Headers[name] {
			fmt.Fprintf(&b, "  %s: %s\n", runview.Printable(name, maxHeaderChars), runview.Printable(value, maxHeaderChars))
		}
	}
	kept := ""
	if s.Kept > 0 {
		kept = fmt.Sprintf(", of which the first %d are kept", s.Kept)
	}
	fmt.Fprintf(&b, "Body (%d bytes%s)\n", s.Bytes, kept)
	for _, line := range s.bodyLines() {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	_, err := a.Out.Write([]byte(b.String()))
	return err
}

// bodyLines is the body for people: JSON indented, and no more than a few screens.
func (s ShownLetter) bodyLines() (lines []string) {
	body := []byte(s.Body)
	switch {
	case s.BodyBase64 != "":
		return []string{"(not text; -o json has it in base64)"}
	case len(body) == 0:
		body = []byte(s.BodyText)
	}
	if len(body) == 0 {
		return nil
	}
	cut := 0
	for line := range runview.JSONLines(body) {
		if len(lines) == maxBodyLines {
			cut++
			continue
		}
		lines = append(lines, runview.Printable(string(line[:min(len(line), maxLineBytes)]), maxLineChars))
	}
	if cut > 0 {
		lines = append(lines, fmt.Sprintf("… %d more lines; -o json has all", cut))
	}
	return lines
}
