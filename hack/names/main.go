// SPDX-License-Identifier: Apache-2.0

// Command names fails where a comment or a page names what does not exist.
//
// It looks at the comments of all Go files, at README.md and at docs, but for docs/adr, which are
// records of their time. There it takes for a name
//
//   - a file, as in lease.go or internal/lockmgr/lease.go, if it ends in .go, .lua or .sh: some
//     file of the tree ends so;
//   - pkg.Name, where pkg is a package of this module: some package of that name declares it;
//   - a word with a capital inside, as in validUntil or TestRun_RightTree: it is in some file of
//     the tree, outside comments;
//   - in a list of mutations, what follows a file, as in "- lease.go validUntil that adds": that
//     file declares it.
//
// What belongs to others is in the list of foreign.go.
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run says all that is wrong with the tree at root.
func run(root string) error {
	t, err := read(root)
	if err != nil {
		return err
	}
	var all []error
	for _, text := range t.texts {
		for _, problem := range t.check(text) {
			all = append(all, fmt.Errorf("%s: %s", text.at, problem))
		}
	}
	if len(t.texts) == 0 {
		all = append(all, errors.New("no comment was found"))
	}
	return errors.Join(all...)
}
