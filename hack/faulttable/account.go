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

// strike is what a play prints of one: "PART=one SEEDS=7: redis hangs + watches cut at 12 of 480
// results; longest stall 1.2s; took 20.3s; counted: lease lost 2, job looked up 1".
var strike = regexp.MustCompile(`PART=(\w+) SEEDS=(\d+): (.+) at \d+ of (\d+) results; longest stall (\S+); took (\S+); counted: (.*)$`)

// wrong is what it prints of a violation.
var wrong = regexp.MustCompile(`PART=(\w+) SEEDS=(\d+), (.+?): `)

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
	Strikes   int     `json:"strikes"`
	Results   int     `json:"results"`
	Wrong     int     `json:"violations"`
	Stall     seconds `json:"longestStallSeconds"`
	Took      seconds `json:"seconds"` // all strikes together

	last uint64 // seed of the round that was read last
}

// tally is that of a fault.
type tally struct {
	Times int     `json:"times"`
	Wrong int     `json:"violations"`
	Stall seconds `json:"longestStallSeconds"`
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
		if m := strike.FindStringSubmatch(lines.Text()); m != nil {
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

// add adds a strike: seed, faults, results of its round, longest stall, how long it took, and what
// was counted. Those of a round follow each other.
func (a *account) add(p *play, strike []string) error {
	seed, err := strconv.ParseUint(strike[0], 10, 64)
	results, errResults := strconv.Atoi(strike[2])
	stall, errStall := time.ParseDuration(strike[3])
	took, errTook := time.ParseDuration(strike[4])
	if err := errors.Join(err, errResults, errStall, errTook); err != nil {
		return err
	}
	if p.Strikes == 0 {
		p.FirstSeed = seed
	}
	if p.Strikes == 0 || seed != p.last {
		p.Rounds++
		p.Results += results
	}
	p.last = seed
	p.Strikes++
	p.Stall, p.Took = max(p.Stall, secondsOf(stall)), seconds(math.Round(10*float64(p.Took+secondsOf(took)))/10)
	for fault := range strings.SplitSeq(strike[1], " + ") {
		t := a.of(fault)
		t.Times++
		t.Stall = max(t.Stall, secondsOf(stall))
	}
	a.count(p.Part, strike[5])
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
