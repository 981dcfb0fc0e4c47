package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the kernel's unit of CPU time in /proc, fixed on Linux.
const clockTick = 10 * time.Millisecond

// cpuTime is what a process used so far, user and system; 0 if it is gone.
func cpuTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may have spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	return time.Duration(atoi(fields[11])+atoi(fields[12])) * clockTick
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
