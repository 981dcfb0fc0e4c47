// SPDX-License-Identifier: Apache-2.0

package store

import (
	"os"
	"strings"
	"testing"
)

// documentedRights are the words of the ACL in doc.go.
func documentedRights(t *testing.T) []any {
	t.Helper()
	raw, err := os.ReadFile("doc.go")
	must(t, err, "read the documentation")
	_, after, found := strings.Cut(string(raw), "An ACL user needs")
	list, _, ended := strings.Cut(after, "and in a cluster")
	if !found || !ended {
		t.Fatal("the documentation lists no rights")
	}
	var rights []any
	for word := range strings.FieldsSeq(list) {
		if strings.HasPrefix(word, "+") || strings.HasPrefix(word, "~") {
			rights = append(rights, word)
		}
	}
	return rights
}
