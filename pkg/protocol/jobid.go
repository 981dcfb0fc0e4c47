// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// NoItem stands for the item of a step that does not fan out.
const NoItem = "-"

// ErrJobID is returned for text that is not a job id. Not worth a retry.
var ErrJobID = errors.New("not a job id")

// JobID names one attempt of one step: what a worker does once, and answers once.
type JobID struct {
	RunUID  string // metadata.uid of the WorkflowRun
	Step    string // name of the step
	Item    string // NoItem, or the decimal index of the item
	Attempt int32  // from 1
}

var (
	uidPattern  = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	stepPattern = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
	itemPattern = regexp.MustCompile(`^(-|0|[1-9][0-9]{0,5})$`)
)

// String is "<runUID>/<step>/<item>/<attempt>", the Nats-Msg-Id of the job.
func (id JobID) String() string {
	return strings.Join(id.tokens(), "/")
}

func (id JobID) tokens() []string {
	return []string{id.RunUID, id.Step, id.Item, strconv.Itoa(int(id.Attempt))}
}

// ParseJobID reads what JobID.String wrote. Its error wraps ErrJobID.
func ParseJobID(s string) (JobID, error) {
	return parseTokens(strings.Split(s, "/"))
}

func parseTokens(t []string) (JobID, error) {
	if len(t) != 4 {
		return JobID{}, fmt.Errorf("%w: %d parts, need 4", ErrJobID, len(t))
	}
	attempt, err := strconv.ParseInt(t[3], 10, 32)
	if err != nil || attempt < 1 || t[3] != strconv.FormatInt(attempt, 10) {
		return JobID{}, fmt.Errorf("%w: attempt %.80q", ErrJobID, t[3])
	}
	switch {
	case !uidPattern.MatchString(t[0]):
		return JobID{}, fmt.Errorf("%w: run UID %.80q", ErrJobID, t[0])
	case !stepPattern.MatchString(t[1]):
		return JobID{}, fmt.Errorf("%w: step %.80q", ErrJobID, t[1])
	case !itemPattern.MatchString(t[2]):
		return JobID{}, fmt.Errorf("%w: item %.80q", ErrJobID, t[2])
	}
	return JobID{RunUID: t[0], Step: t[1], Item: t[2], Attempt: int32(attempt)}, nil
}
