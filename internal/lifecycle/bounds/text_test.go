// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextsAreBounded(t *testing.T) {
	if text := CutBytes(strings.Repeat("…", 2*MaxMessageChars), MaxEventBytes); len(text) > MaxEventBytes || len(text) < MaxEventBytes-3 || !utf8.ValidString(text) {
		t.Errorf("an event of %d bytes: %s", len(text), text)
	}
	for _, s := range []string{"", "abc", "<é\u2028>", strings.Repeat("<é", 20)} {
		for n := range 40 {
			got := CutStored(s, n)
			if !strings.HasPrefix(s, got) || (got != "" && StoredBytes(got) > n) || (got != s && StoredBytes(s) <= n) {
				t.Errorf("cutStored(%q, %d) = %q", s, n, got)
			}
		}
	}
	for in, want := range map[string]string{"abc": "abc", "äöüß": "äö…", "a\xffb": "a?b", "\xff\xff\xff\xff\xffx": "?x"} {
		if got := Cut(in, 3); got != want {
			t.Errorf("cut(%q) = %q, want %q", in, got, want)
		}
	}
}
