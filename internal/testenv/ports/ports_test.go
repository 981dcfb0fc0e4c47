// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// mutation: a claim that is dropped, no claim, or no look at who listens makes this fail.
func TestNobodyElseGetsAPort(t *testing.T) {
	if from, err := strconv.Atoi(os.Getenv("PORTS_FROM")); err == nil { // the other process
		taken.next = from
		for range 20 {
			port, err := Free()
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println("port", port)
		}
		return
	}
	got := map[int]bool{}
	take := func() int {
		port, err := Free()
		if err != nil {
			t.Fatal(err)
		}
		if got[port] || port < first || port > last {
			t.Errorf("port %d, which is of no use or taken", port)
		}
		got[port] = true
		return port
	}
	begin := take()
	busy, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(begin+2)))
	if err == nil { // else somebody else listens there, which is as well
		defer func() { _ = busy.Close() }()
		got[begin+2] = true
	}
	for range 10 {
		take()
	}

	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNobodyElseGetsAPort$", "-test.v")
	child.Env = append(os.Environ(), "PORTS_FROM="+strconv.Itoa(begin))
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	others := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var port int
		if _, err := fmt.Sscanf(lines.Text(), "port %d", &port); err == nil {
			others++
			if got[port] {
				t.Errorf("another process got port %d, too", port)
			}
		}
	}
	if err := child.Wait(); err != nil || others != 20 {
		t.Errorf("the other process got %d ports: %v", others, err)
	}
}
