// SPDX-License-Identifier: Apache-2.0

package views

import (
	"time"

	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

// Letters is the page of dead letters.
type Letters struct {
	Why     string // why there is nothing to show; "": there is
	Warning string // that they are another cluster's; "": nobody tells
	Letters []Letter
	More    int
}

// Letter is a dead letter.
type Letter struct {
	facts.Letter
	Stored Moment
}

// LettersOf makes the page.
func LettersOf(letters facts.Letters, now time.Time) Letters {
	page := Letters{Warning: text(letters.Warning), More: letters.More}
	for _, l := range letters.All {
		l.Reason, l.Cause, l.Refused, l.Run = shortText(l.Reason), text(l.Cause), text(l.Refused), shortText(l.Run)
		page.Letters = append(page.Letters, Letter{l, moment(&l.StoredAt, now)})
	}
	return page
}
