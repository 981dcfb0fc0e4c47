// SPDX-License-Identifier: Apache-2.0

// Package ports finds ports for the servers of tests that have to know theirs before they listen.
//
// A port that the kernel gave and that was closed again is free for everybody: until the server
// listens, another process may be given it, or a connection that begins here may get it as its near
// end. So these are of a range from which the kernel gives none, and no two processes of tests on a
// machine get the same.
package ports

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
)

// The kernel gives ports from 32768 by default; those of Kubernetes' node ports begin at 30000.
const first, last = 10000, 29999

var errNone = errors.New("no port is free")

// taken are the ports of this process, which keep them from others until it ends.
var taken = struct {
	sync.Mutex
	next   int
	claims []net.Listener
}{next: first + os.Getpid()*37%(last-first)}

// Free is a port of the loopback interface that nobody listens on, and that nobody else gets from
// here before this process has ended.
func Free() (int, error) {
	taken.Lock()
	defer taken.Unlock()
	for range last - first + 1 {
		port := taken.next
		if taken.next++; taken.next > last {
			taken.next = first
		}
		claim, err := claimOf(port)
		if err != nil {
			continue // another process of a test has it
		}
		if listens(port) {
			_ = claim.Close() // nothing depends on it
			continue
		}
		taken.claims = append(taken.claims, claim)
		return port, nil
	}
	return 0, fmt.Errorf("%w from %d to %d", errNone, first, last)
}

// Address is Free with the loopback interface's address.
func Address() (string, error) {
	port, err := Free()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}

// listens says whether a port cannot be had, on this machine's addresses of any kind.
func listens(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port)))
	if err != nil {
		return true
	}
	return l.Close() != nil
}
