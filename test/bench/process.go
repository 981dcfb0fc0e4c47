// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clockTick is the kernel's unit of CPU time in /proc, fixed on Linux.
const clockTick = 10 * time.Millisecond

// cpuTime is what a process used so far, user and system; 0 if it is gone.
func cpuTime(pid int) time.Duration {
	s := statOf(pid)
	return s.used
}

// exactCPU is cpuTime to the nanosecond, by the CPU clock of the process (clock_getcpuclockid).
func exactCPU(pid int) (time.Duration, error) {
	const ofProcess = 2 // CPUCLOCK_SCHED
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|ofProcess), &t); err != nil {
		return 0, fmt.Errorf("read the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// stat is what the kernel says of a process.
type stat struct {
	parent     int
	used, gone time.Duration // by itself, and by children that it has waited for
}

func statOf(pid int) (s stat) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may have spaces
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return s
	}
	ticks := func(i int) time.Duration { return time.Duration(atoi(fields[i])+atoi(fields[i+1])) * clockTick }
	return stat{parent: int(atoi(fields[1])), used: ticks(11), gone: ticks(13)}
}

// ownTime is what this process used so far, with all that it started, also what is gone.
func ownTime() time.Duration {
	files, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0
	}
	all := map[int]stat{}
	for _, file := range files {
		pid := int(atoi(filepath.Base(file)))
		all[pid] = statOf(pid)
	}
	return familyTime(all, os.Getpid())
}

// familyTime is what a process and its descendants used.
func familyTime(all map[int]stat, root int) time.Duration {
	total := all[root].used + all[root].gone
	for pid, s := range all {
		if s.parent == root && pid != root {
			total += familyTime(all, pid)
		}
	}
	return total
}

// memoryOf is what a process has in memory now, and the most it ever had, in MiB.
func memoryOf(pid int) (now, most float64) {
	file := fmt.Sprintf("/proc/%d/status", pid)
	return kib(field(file, "VmRSS")) / 1024, kib(field(file, "VmHWM")) / 1024
}

func kib(text string) float64 { return float64(atoi(strings.TrimSuffix(text, " kB"))) }

func atoi(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// childrenOf finds the servers that this process started, by the name of their program.
func childrenOf(parent int) map[string]int {
	found := map[string]int{}
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return found
	}
	for _, file := range files {
		if atoi(field(file, "PPid")) == int64(parent) {
			found[field(file, "Name")] = int(atoi(filepath.Base(filepath.Dir(file))))
		}
	}
	return found
}
