// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"maps"
	"testing"
)

func TestParseLockFences(t *testing.T) {
	got, err := ParseLockFences([]string{"gpu-pool/eu=17", "mutex:team-a/a=b=18"})
	if want := map[string]int64{"gpu-pool/eu": 17, "mutex:team-a/a=b": 18}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if got, err := ParseLockFences(nil); got != nil || err != nil {
		t.Errorf("%v, %v of nothing", got, err)
	}
	for _, bad := range []string{"", "=1", "a", "a=", "a=x", "a=0", "a=-1", "a=99999999999999999999"} {
		if _, err := ParseLockFences([]string{bad}); !errors.Is(err, ErrLockFence) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
