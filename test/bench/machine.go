// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// busyShare is the part of the cores in use by others from which on figures say more about the
	// machine's other work.
	busyShare = 0.1
	// busyLook is how long that is measured, at most, before the program begins its work: the build
	// of this program itself is over by then, and no load average says so for a minute.
	busyLook = 3 * time.Second
)

// machine is what figures were measured on.
type machine struct {
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`
	MemoryMiB  int     `json:"memoryMiB"`
	Kernel     string  `json:"kernel"`
	Go         string  `json:"go"`
	APIServer  string  `json:"kubeAPIServer"`
	Etcd       string  `json:"etcd"`
	Redis      string  `json:"redis"`
	NATS       string  `json:"nats"`
	Commit     string  `json:"commit"`
	Load       float64 `json:"load"`   // average of one minute, when the program began
	Others     float64 `json:"others"` // cores that others used, right before it began
	BusyAtHead bool    `json:"busy"`   // others used the machine
}

func lookAtMachine(ctx context.Context, o options) machine {
	assets := assetsOf(o)
	m := machine{
		CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), MemoryMiB: memoryMiB(), Kernel: firstLine(os.ReadFile("/proc/sys/kernel/osrelease")),
		Go: runtime.Version(), NATS: server.VERSION,
		APIServer: says(ctx, filepath.Join(assets, "kube-apiserver"), "--version"),
		Etcd:      says(ctx, filepath.Join(assets, "etcd"), "--version"),
		Redis:     says(ctx, "redis-server", "--version"),
		Commit:    says(ctx, "git", "-C", o.root, "describe", "--always", "--dirty"),
		Load:      loadAverage(),
		Others:    coresInUse(ctx, busyLook),
	}
	m.BusyAtHead = m.isMuch(m.Others)
	return m
}

// isMuch says whether so many cores in use by others make figures mean little.
func (m machine) isMuch(cores float64) bool { return cores > busyShare*float64(m.Cores) }

func (m machine) print(w io.Writer) {
	fmt.Fprintf(w, "%s, %d cores, %d MiB, Linux %s\n%s; %s; %s; nats-server %s; %s; commit %s\nload average %.2f, %.2f cores in use before the start\n",
		m.CPU, m.Cores, m.MemoryMiB, m.Kernel, m.APIServer, m.Etcd, m.Redis, m.NATS, m.Go, m.Commit, m.Load, m.Others)
	if m.BusyAtHead {
		fmt.Fprintln(w, "WARNING: the machine is busy with other work. Absolute figures mean little, ratios are blurred.")
	}
}

// loadAverage is that of the last minute; 0 where the system does not tell.
func loadAverage() float64 {
	first, _, _ := strings.Cut(firstLine(os.ReadFile("/proc/loadavg")), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load
}

// coresInUse measures how many cores work; 0 where the system does not tell.
func coresInUse(ctx context.Context, within time.Duration) float64 {
	begin, before := time.Now(), busyTime()
	select {
	case <-ctx.Done():
	case <-time.After(within):
	}
	return (busyTime() - before).Seconds() / time.Since(begin).Seconds()
}

// observer measures what others do with the machine while a suite runs.
type observer struct {
	begin      time.Time
	busy, ours time.Duration
}

func observe() observer { return observer{time.Now(), busyTime(), ownTime()} }

// others is how many cores other programs used since.
func (o observer) others() float64 {
	return max(0, (busyTime()-o.busy-ownTime()+o.ours).Seconds()/time.Since(o.begin).Seconds())
}

// busyTime is how long all cores have worked since the machine began.
func busyTime() time.Duration {
	var user, nice, system, idle, wait, irq, soft, stolen int64
	text := firstLine(os.ReadFile("/proc/stat"))
	if _, err := fmt.Sscanf(text, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &soft, &stolen); err != nil {
		return 0
	}
	return time.Duration(user+nice+system+irq+soft) * clockTick
}

func memoryMiB() int {
	kib, err := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"))
	if err != nil {
		return 0
	}
	return kib >> 10
}

// field reads "name : value" from a file of /proc; empty if it is not there.
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// says is the first line that a program prints; "unknown" if it cannot be run.
func says(ctx context.Context, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return "unknown"
	}
	return firstLine(out, nil)
}

func firstLine(text []byte, err error) string {
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

func assetsOf(o options) string {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir
	}
	return filepath.Join(o.root, "bin", "k8s")
}
