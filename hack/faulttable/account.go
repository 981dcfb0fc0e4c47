// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// round is what a play prints of one: "PART=one SEEDS=7: redis hangs + watches cut at 12 results;
// longest stall 1.2s; round 20.3s; counted: lease lost 2, job looked up 1".
var round = regexp.MustCompile(`PART=(\w+) SEEDS=(\d+): (.+) at \d+ results; longest stall (\S+); round (\S+); counted: (.*)$`)

// wrong is what it prints of a violation.
var wrong = regexp.MustCompile(`PART=(\w+) SEEDS=(\d+), (.+?): `)

// resultsOfARound is how many results each round has.
const resultsOfARound = 120

// account is that of all plays.
type account struct {
	Plays   []*play                   `json:"plays"`
	Faults  map[string]*tally         `json:"faults"`
	Counted map[string]map[string]int `json:"counted"` // what, by part
}

// play is one on one part, whose seeds follow each other.
type play struct {
	Part      string  `json:"part"`
	Commit    string  `json:"commit,omitempty"`
	FirstSeed uint64  `json:"firstSeed"`
	Rounds    int     `json:"rounds"`
	Wrong     int     `json:"violations"`
	Stall     seconds `json:"longestStallSeconds"`
	Took      seconds `json:"seconds"` // all rounds together
}

// tally is that of a fault.
type tally struct {
	Rounds int     `json:"rounds"`
	Wrong  int     `json:"violations"`
	Stall  seconds `json:"longestStallSeconds"`
}

// seconds are rounded to tenths.
type seconds float64

func secondsOf(d time.Duration) seconds { return seconds(math.Round(d.Seconds()*10) / 10) }

func (s seconds) String() string { return fmt.Sprintf("%.1f s", float64(s)) }

// load reads totals. A file that is not there has none.
func load(path string) (*account, error) {
	a := &account{Faults: map[string]*tally{}, Counted: map[string]map[string]int{}}
	if path == "" {
		return a, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read totals: %w", err)
	}
	if err := json.Unmarshal(text, a); err != nil {
		return nil, fmt.Errorf("read totals of %s: %w", path, err)
	}
	return a, nil
}

func (a *account) save(path string) error {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "  ")
	if err := e.Encode(a); err != nil {
		return fmt.Errorf("write totals: %w", err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write totals: %w", err)
	}
	return nil
}

func (a *account) readFile(path, commit string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(a.read(f, commit), f.Close())
}

// read adds a play.
func (a *account) read(in io.Reader, commit string) error {
	var p *play
	of := func(part string) *play { // also where the first round did not end
		if p == nil {
			p = &play{Part: part, Commit: commit}
			a.Plays = append(a.Plays, p)
		}
		return p
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := round.FindStringSubmatch(lines.Text()); m != nil {
			if err := a.add(of(m[1]), m[2:]); err != nil {
				return err
			}
		} else if m := wrong.FindStringSubmatch(lines.Text()); m != nil {
			of(m[1]).Wrong++
			for fault := range strings.SplitSeq(m[3], " + ") {
				a.of(fault).Wrong++
			}
		}
	}
	return lines.Err()
}

// add adds a round: seed, faults, longest stall, how long it took, and what was counted.
func (a *account) add(p *play, round []string) error {
	seed, err := strconv.ParseUint(round[0], 10, 64)
	if err != nil {
		return err
	}
	stall, err := time.ParseDuration(round[2])
	if err != nil {
		return err
	}
	took, err := time.ParseDuration(round[3])
	if err != nil {
		return err
	}
	if p.Rounds == 0 {
		p.FirstSeed = seed
	}
	p.Rounds++
	p.Stall, p.Took = max(p.Stall, secondsOf(stall)), seconds(math.Round(10*float64(p.Took+secondsOf(took)))/10)
	for fault := range strings.SplitSeq(round[1], " + ") {
		t := a.of(fault)
		t.Rounds++
		t.Stall = max(t.Stall, secondsOf(stall))
	}
	a.count(p.Part, round[4])
	return nil
}

// count adds what operators counted: "lease lost 2, job looked up 1".
func (a *account) count(part, text string) {
	for entry := range strings.SplitSeq(text, ", ") {
		i := strings.LastIndex(entry, " ")
		if i < 0 {
			continue // nothing was counted
		}
		what := entry[:i]
		n, err := strconv.Atoi(entry[i+1:])
		if err != nil {
			continue
		}
		if a.Counted[what] == nil {
			a.Counted[what] = map[string]int{}
		}
		a.Counted[what][part] += n
	}
}

// of is the tally of a fault.
func (a *account) of(fault string) *tally {
	if a.Faults[fault] == nil {
		a.Faults[fault] = &tally{}
	}
	return a.Faults[fault]
}
