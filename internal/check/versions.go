// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strconv"
	"strings"
)

// What the operator needs at least.
const (
	minKubernetes = "1.33"
	minNATS       = "2.12"
	minRedis      = "6.2"
)

func judgeVersion(f Facts) []Finding {
	if f.Server.Why != "" {
		return KubernetesVersion.unread(f.Server.Unread)
	}
	return KubernetesVersion.version("Kubernetes", f.Server.Version, minKubernetes)
}

// version compares the first two numbers.
func (c Code) version(what, have, least string) []Finding {
	got, ok := numbers(have)
	want, _ := numbers(least)
	switch {
	case !ok:
		return []Finding{c.find(Unknown, "", "the version of %s is %q, which is no version", what, have)}
	case got[0] < want[0] || got[0] == want[0] && got[1] < want[1]:
		return []Finding{c.find(Failed, "update "+what+" to "+least+" or newer", "%s is %s; %s is the oldest that works", what, have, least)}
	}
	return c.ok("%s %s", what, have)
}

func numbers(version string) (n [2]int, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < len(n) {
		return n, false
	}
	for i := range n {
		digits := strings.TrimRight(parts[i], "+") // as 33+ of some providers
		var err error
		if n[i], err = strconv.Atoi(digits); err != nil {
			return n, false
		}
	}
	return n, true
}
