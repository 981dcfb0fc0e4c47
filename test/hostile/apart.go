// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// OrdersEnv has the orders of a process that does harm, as JSON: a program that finds it among its
// variables calls DoHarm.
const OrdersEnv = "HOSTILE_ORDERS"

var (
	errHarmGone = errors.New("the process that does harm ended too early")
	errHarm     = errors.New("the process that does harm says")
)

// orders are what a process that does harm is told at its start.
type orders struct {
	Kubeconfig, NATS, Redis, Scene string
	Kinds                          []string
	Dose                           Dose
}

// Dose is how kinds of harm are to be done.
type Dose struct {
	Size Size
	Calm bool // what each kind is compared with, in its place
}

// line is what the two processes tell each other, one in a line. The one that does harm says that
// it is under way, asks for a change of owner, and says what it found. The other one says that the
// owner has changed, and that it is enough; the end of what it says is the end of it.
type line struct {
	Word    word
	Finding Finding
	Error   string
}

type word string

const (
	underWay word = "under way"
	change   word = "change"
	changed  word = "changed"
	enough   word = "enough"
	over     word = "over"
)

// Apart is harm that another process does, so that what its clients use can be told from the rest,
// and can be held back: a tenant's clients have machines of their own.
type Apart struct {
	scene *Scene
	cmd   *exec.Cmd

	mu    sync.Mutex // of words
	in    io.Closer
	words *json.Encoder

	begun    chan struct{}
	finished chan struct{} // the process is gone, and the two below are set
	finding  Finding
	err      error
}

// AttackApart has a process do harm of some kinds at a time, and returns when each is under way.
// The command begins a
// program that calls DoHarm. What is returned has to be stopped, also with an error; nil: it
// did not begin.
func (s *Scene) AttackApart(ctx context.Context, cmd *exec.Cmd, dose Dose, kinds ...Kind) (*Apart, error) {
	told := orders{Kubeconfig: s.Env.Kubeconfig, NATS: s.nats, Redis: s.redisAddr, Scene: s.Name, Dose: dose}
	for _, k := range kinds {
		told.Kinds = append(told.Kinds, k.Name)
	}
	text, err := json.Marshal(told)
	if err != nil {
		return nil, fmt.Errorf("encode orders: %w", err)
	}
	cmd.Env = append(os.Environ(), OrdersEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is for the one that stops it
	a := &Apart{scene: s, cmd: cmd, begun: make(chan struct{}), finished: make(chan struct{})}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a process that does harm: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a process that does harm: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process that does harm: %w", err)
	}
	a.in, a.words = in, json.NewEncoder(in)
	go a.listen(context.WithoutCancel(ctx), out)
	select {
	case <-a.begun:
		return a, nil
	case <-a.finished:
		return a, errors.Join(errHarmGone, a.err)
	case <-ctx.Done():
		return a, fmt.Errorf("wait for harm: %w", context.Cause(ctx))
	}
}

// listen does what the process asks for, until it is gone.
func (a *Apart) listen(ctx context.Context, out io.Reader) {
	defer close(a.finished)
	isOver := false
	for words := json.NewDecoder(out); ; {
		var l line
		if err := words.Decode(&l); err != nil {
			break
		}
		switch l.Word {
		case underWay:
			close(a.begun)
		case change:
			a.say(line{Word: changed, Error: textOf(a.scene.change(ctx))})
		case over:
			isOver, a.finding, a.err = true, l.Finding, asError(l.Error)
		case changed, enough: // not for us
		}
	}
	err := a.cmd.Wait()
	if !isOver {
		a.err = errors.Join(errHarmGone, err)
	}
}

// say tells the process something, which may be gone.
func (a *Apart) say(l line) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.words.Encode(l)
}

// PID is the number of the process.
func (a *Apart) PID() int { return a.cmd.Process.Pid }

// Stop ends the harm as Attack.Stop does, and says what it found. Once is enough. A process that
// does not end in time is killed, which is an error.
func (a *Apart) Stop(ctx context.Context) (Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, apartLimit)
	defer cancel()
	a.say(line{Word: enough})
	select {
	case <-a.finished:
	case <-ctx.Done():
		_ = a.cmd.Process.Kill()
		<-a.finished
	}
	_ = a.in.Close() // it is gone
	return a.finding, a.err
}

// textOf and asError carry an error over; "" is none.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func asError(text string) error {
	if text == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", errHarm, text)
}
