// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what became of a verification.
type Report struct {
	Namespace string        `json:"namespace"`
	Seed      uint64        `json:"seed"` // the same seed plays the same again
	Took      time.Duration `json:"tookNanos"`
	Runs      int           `json:"runs"`
	Ended     int           `json:"ended"`
	// Results are attempts whose result NATS confirmed. The others are what workers made hard.
	Results      int      `json:"results"`
	Duplicates   int      `json:"duplicates"`   // messages that NATS knew already
	Redeliveries int      `json:"redeliveries"` // jobs that came again
	Uploads      int      `json:"uploads"`      // outputs too large for a message
	Checks       []Check  `json:"checks"`
	Numbers      []Number `json:"numbers"`
	Faults       []Done   `json:"faults,omitempty"`
}

// Check is one guarantee.
type Check struct {
	Name    string   `json:"name"`
	What    string   `json:"what"`
	Wrong   []string `json:"wrong,omitempty"`
	Unknown string   `json:"unknown,omitempty"` // why it could not be told
}

// Number is a figure here, and as it was published; "": it was not.
type Number struct {
	Name      string `json:"name"`
	Here      string `json:"here"`
	Published string `json:"published,omitempty"`
}

// Verdicts of a check.
const (
	ok      = "ok"
	failed  = "FAILED"
	unknown = "unknown"
)

func (c Check) verdict() string {
	switch {
	case len(c.Wrong) > 0:
		return failed
	case c.Unknown != "":
		return unknown
	default:
		return ok
	}
}

// Count is how many checks failed, and how many could not be told.
func (r Report) Count() (wrong, untold int) {
	for _, c := range r.Checks {
		switch c.verdict() {
		case failed:
			wrong++
		case unknown:
			untold++
		}
	}
	return wrong, untold
}

// Table writes the report for people.
func (r Report) Table(out io.Writer) error {
	fmt.Fprintf(out, "%d of %d runs ended in %s. Workers gave %d results; %d were said again, %d jobs came again, %d outputs were too large for a message.\n\n",
		r.Ended, r.Runs, r.Took.Round(100*time.Millisecond), r.Results, r.Duplicates, r.Redeliveries, r.Uploads)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "CHECK\tVERDICT\tWHAT\n")
	for _, c := range r.Checks {
		fmt.Fprintf(w, "%s\t%s\t%s\n", c.Name, c.verdict(), c.What)
		for i, wrong := range c.Wrong {
			if i == maxTold {
				fmt.Fprintf(w, "\t\t  and %d more\n", len(c.Wrong)-i)
				break
			}
			fmt.Fprintf(w, "\t\t  %s\n", wrong)
		}
		if c.Unknown != "" {
			fmt.Fprintf(w, "\t\t  %s\n", c.Unknown)
		}
	}
	fmt.Fprint(w, "\nNUMBER\tHERE\tPUBLISHED\n")
	for _, n := range r.Numbers {
		fmt.Fprintf(w, "%s\t%s\t%s\n", n.Name, n.Here, n.Published)
	}
	for _, d := range r.Faults {
		fmt.Fprintf(w, "\nfault %s: %s\n", d.Fault, d.What)
	}
	return w.Flush()
}

type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string     `xml:"name,attr"`
		Class   string     `xml:"classname,attr"`
		Failure *junitNote `xml:"failure,omitempty"`
		Skipped *junitNote `xml:"skipped,omitempty"`
	}
	junitNote struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes the report as CI systems read it: a case for each check.
func (r Report) JUnit(out io.Writer) error {
	wrong, untold := r.Count()
	s := junitSuite{Name: "syncopate verify", Tests: len(r.Checks), Failures: wrong, Skipped: untold, Time: fmt.Sprintf("%.3f", r.Took.Seconds())}
	for _, c := range r.Checks {
		one := junitCase{Name: c.Name + ": " + c.What, Class: "syncopate.verify"}
		switch c.verdict() {
		case failed:
			one.Failure = &junitNote{Message: c.What, Text: strings.Join(c.Wrong, "\n")}
		case unknown:
			one.Skipped = &junitNote{Message: c.Unknown}
		}
		s.Cases = append(s.Cases, one)
	}
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(out)
	e.Indent("", "  ")
	if err := e.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\n")
	return err
}
