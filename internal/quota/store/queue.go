// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// maxSeconds bounds creation times in the queue: twelve digits.
const maxSeconds = 999_999_999_999

// member is a run as it stands in the queue: members sort by their bytes as the runs stand in the
// queue. A space is below all that a name may have, so a name comes before those that it begins.
func member(r Run) string {
	return fmt.Sprintf("%010d %012d %s %s", int64(math.MaxInt32)-int64(r.Priority), min(max(0, r.Created.Unix()), maxSeconds), r.Name, r.UID)
}

// parseMember is the run that a member was made of.
func parseMember(m string) (Run, error) {
	parts := strings.Split(m, " ")
	if len(parts) != 4 {
		return Run{}, fmt.Errorf("no member of a line: %.200q", m)
	}
	priority, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return Run{}, fmt.Errorf("priority in a line: %w", err)
	}
	created, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return Run{}, fmt.Errorf("creation time in a line: %w", err)
	}
	return Run{UID: parts[3], Name: parts[2], Priority: int32(math.MaxInt32 - priority), Created: time.Unix(created, 0).UTC()}, nil
}
