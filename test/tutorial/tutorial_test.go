// SPDX-License-Identifier: Apache-2.0

// Package tutorial runs README.md and docs/tutorial.md as a reader would: every command, in order,
// in one shell.
package tutorial

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	page = "docs/tutorial.md"
	// patience is for a command, the first build of the API server included.
	patience = 20 * time.Minute
	// exportLines are those that the demo prints.
	exportLines = 3
	// mark ends the output of a command, followed by its exit code.
	mark = "@@end "
)

var root = filepath.Join("..", "..")

// command is one of the page, with the output that it shows; nil: it shows none.
type command struct {
	text string
	want []string
}

// consoleBlock is a block of commands, which begin with a dollar, and their output.
var consoleBlock = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

// commands reads a page.
func commands(text string) (all []command) {
	for _, block := range consoleBlock.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSuffix(line, "\n")
			first, begins := strings.CutPrefix(line, "$ ")
			switch {
			case begins:
				all = append(all, command{text: first})
			case open(all[len(all)-1].text):
				all[len(all)-1].text += "\n" + line
			default:
				all[len(all)-1].want = append(all[len(all)-1].want, line)
			}
		}
	}
	return all
}

// commandsOf reads the commands of a file.
func commandsOf(t *testing.T, path string) []command {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return commands(string(text))
}

// open says whether a command goes on in the next line.
func open(text string) bool {
	return strings.Count(text, "<<") > strings.Count(text, "\nEND") ||
		strings.HasPrefix(text, "for ") && !strings.HasSuffix(text, "\ndone")
}

// shows says whether the output is what the page shows, where "..." stands for anything.
func (c command) shows(output string) bool {
	pattern := regexp.QuoteMeta(strings.Join(c.want, "\n"))
	pattern = strings.ReplaceAll(pattern, `\.\.\.`, "(?s:.*)")
	return c.want == nil || regexp.MustCompile("^"+pattern+"$").MatchString(strings.TrimSpace(output))
}

// noise is what bash says of a program that it started and that was killed.
var noise = regexp.MustCompile(`(?m)^.*: line \d+: +\d+ (Killed|Terminated) .*\n`)

// shell is a bash that keeps its variables and jobs from one command to the next.
type shell struct {
	in  io.Writer
	out *bufio.Reader
}

// startShell starts one in the repository. It and what it started end with the test.
func startShell(t *testing.T) *shell {
	t.Helper()
	cmd := exec.Command("bash")
	cmd.Dir, cmd.SysProcAttr = root, &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // bash has it
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_ = r.Close()
	})
	return &shell{in: in, out: bufio.NewReader(r)}
}

// run runs a command and gives what it printed.
func (s *shell) run(text string) (output, code string, err error) {
	if _, err := fmt.Fprintf(s.in, "%s\ncode=$?; echo; echo \"%s$code\"\n", text, mark); err != nil {
		return "", "", err
	}
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			return output, "", err
		}
		if code, ended := strings.CutPrefix(line, mark); ended {
			return noise.ReplaceAllString(output, ""), strings.TrimSpace(code), nil
		}
		output += line
	}
}

// startDemo runs the first command of the page until it says how a second terminal gets there.
func startDemo(t *testing.T, text string) (exports []string, printed string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.Command("bash", "-c", text)
	cmd.Dir, cmd.SysProcAttr = root, &syscall.SysProcAttr{Setpgid: true}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // the demo has it
	lines, ended := make(chan string), make(chan struct{})
	go func() {
		defer close(ended)
		for s := bufio.NewScanner(r); s.Scan(); {
			select {
			case lines <- s.Text():
			case <-ctx.Done(): // nobody listens any more
			}
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		<-ended // and all that it started
		_ = cmd.Wait()
		_ = r.Close()
	})
	var said strings.Builder
	for len(exports) < exportLines {
		select {
		case <-ctx.Done():
			t.Fatalf("%s is not ready: %s", text, said.String())
		case <-ended:
			t.Fatalf("%s ended: %s", text, said.String())
		case line := <-lines:
			said.WriteString(line + "\n")
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "export ") {
				exports = append(exports, line)
			}
		}
	}
	return exports, said.String()
}

// rows are those of the tables of runs in a text, as words with one space between them. The number
// in the name of a scheduled run is its time.
func rows(text string) map[string]bool {
	found, in := map[string]bool{}, false
	for line := range strings.Lines(text) {
		words := strings.Join(strings.Fields(line), " ")
		switch {
		case strings.HasPrefix(words, "RUN PHASE STEPS"):
			in = true
		case words == "":
			in = false
		case in:
			found[scheduled.ReplaceAllString(words, "$1-TIME ")] = true
		}
	}
	return found
}

var scheduled = regexp.MustCompile(`^(\w+)-\d+ `)

// The table of the README is the demo's last: each row was printed, and each run that was
// printed has one.
func checkReadme(t *testing.T, printed string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	name := func(row string) string { return strings.Fields(row)[0] }
	shown, names := rows(string(text)), map[string]bool{}
	for row := range shown {
		names[name(row)] = true
		if !rows(printed)[row] {
			t.Errorf("the README shows what the demo does not print: %s", row)
		}
	}
	for row := range rows(printed) {
		if !names[name(row)] {
			t.Errorf("the README lacks the run of %s", row)
		}
	}
}

// Whoever follows README.md, or the tutorial, sees what it shows.
// mutation: an output of the page that is changed, a command with a typing error, a demo that
// prints no addresses, or a README with another table makes this fail.
func TestTheTutorialDoesWhatItSays(t *testing.T) {
	for _, program := range []string{"redis-server", "redis-cli"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("REQUIRE_REDIS") == "" {
			t.Skipf("no %s", program)
		}
	}
	all := commandsOf(t, page)
	exports, printed := startDemo(t, all[0].text)
	checkReadme(t, printed)
	s := startShell(t)
	toRun := slices.Concat([]command{{text: strings.Join(exports, "; ")}}, commandsOf(t, "README.md"), all[1:])
	for _, c := range toRun {
		begin := time.Now()
		output, code, err := s.run(c.text)
		if err != nil || code != "0" {
			t.Fatalf("$ %s\n%s\nexit code %s, %v", c.text, output, code, err)
		}
		if !c.shows(output) {
			t.Fatalf("$ %s\nthe page shows:\n%s\nand it prints:\n%s", c.text, strings.Join(c.want, "\n"), output)
		}
		t.Logf("%s $ %s\n%s", time.Since(begin).Round(time.Millisecond), c.text, strings.TrimSpace(output))
	}
}

// mutation: open that is always false makes this fail.
func TestCommandsOfAPage(t *testing.T) {
	got := commands("text\n```console\n$ one\nshown\n$ cat <<'END'\nin it\nEND\n$ for a in b; do cat <<END\nx\nEND\ndone\nx\n```\n```\nno\n```\n")
	want := []command{{"one", []string{"shown"}}, {"cat <<'END'\nin it\nEND", nil}, {"for a in b; do cat <<END\nx\nEND\ndone", []string{"x"}}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q", got)
	}
	if c := (command{want: []string{"a ...", "...", "z"}}); !c.shows("a b\nc\nd\nz\n") || c.shows("b\nz") {
		t.Error("dots stand for anything")
	}
}
