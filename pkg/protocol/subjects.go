// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// Partitions is the number of partitions of the results. It is part of the protocol: results can be
// sharded between operator replicas without a change of subjects.
const Partitions = 64

// DefaultPrefix is the first token of all subjects, and in capitals the first word of
// all stream names.
const DefaultPrefix = "syncopate"

// Names gives streams and subjects their names under one prefix, a single subject
// token of [a-z0-9-].
type Names struct{ Prefix string }

// JobsStream is the name of the stream of jobs.
func (n Names) JobsStream() string { return n.stream("JOBS") }

// ResultsStream is the name of the stream of results.
func (n Names) ResultsStream() string { return n.stream("RESULTS") }

// DeadLettersStream is the name of the stream of dead letters.
func (n Names) DeadLettersStream() string { return n.stream("DEADLETTERS") }

// ControlStream is the name of the stream of control messages.
func (n Names) ControlStream() string { return n.stream("CONTROL") }

func (n Names) stream(kind string) string {
	return strings.ToUpper(strings.ReplaceAll(n.Prefix, "-", "_")) + "_" + kind
}

// Job is the subject of one job.
func (n Names) Job(topic string, id JobID) string {
	return fmt.Sprintf("%s.jobs.%s.%s", n.Prefix, topic, strings.Join(id.tokens(), "."))
}

// fenceWord takes the place of a topic's first word in the subjects of fence messages. No topic has
// it, so no filter of a topic, and no worker, gets them.
const fenceWord = "_fence"

// Fence is the subject of the fence messages of an attempt: what the operator stores before it
// looks up whether the job was published.
func (n Names) Fence(topic string, id JobID) string { return n.Job(firstWord(topic, fenceWord), id) }

// Dispatch is the filter for the job of an attempt and its fence messages, and nothing else.
func (n Names) Dispatch(topic string, id JobID) string { return n.Job(firstWord(topic, "*"), id) }

// firstWord is a topic with another first word.
func firstWord(topic, word string) string {
	if _, rest, more := strings.Cut(topic, "."); more {
		return word + "." + rest
	}
	return word
}

// ParseJob reads topic and job id from a subject made by Job. Its error wraps ErrJobID.
func (n Names) ParseJob(subject string) (topic string, id JobID, err error) {
	rest, ok := strings.CutPrefix(subject, n.Prefix+".jobs.")
	tokens := strings.Split(rest, ".")
	if !ok || len(tokens) < 5 || tokens[0] == fenceWord {
		return "", JobID{}, fmt.Errorf("%w: subject %.200q", ErrJobID, subject)
	}
	ends := len(tokens) - 4
	if id, err = parseTokens(tokens[ends:]); err != nil {
		return "", JobID{}, fmt.Errorf("subject %.200q: %w", subject, err)
	}
	return strings.Join(tokens[:ends], "."), id, nil
}

// TopicJobs is the filter for all jobs of a topic. Its fixed number of tokens keeps the topics "a"
// and "a.b" apart.
func (n Names) TopicJobs(topic string) string { return n.Prefix + ".jobs." + topic + ".*.*.*.*" }

// RunJobs is the filter for the jobs of one run that are of a topic.
func (n Names) RunJobs(topic, runUID string) string {
	return n.Prefix + ".jobs." + topic + "." + runUID + ".*.*.*"
}

// Result is the subject on which the result of a job is published.
func (n Names) Result(id JobID) string {
	return fmt.Sprintf("%s.results.%02d.%s", n.Prefix, Partition(id.RunUID), strings.Join(id.tokens(), "."))
}

// RunResults is the filter for all results of one run.
func (n Names) RunResults(runUID string) string {
	return fmt.Sprintf("%s.results.%02d.%s.>", n.Prefix, Partition(runUID), runUID)
}

// PartitionResults is the filter for all results of one partition.
func (n Names) PartitionResults(partition int) string {
	return fmt.Sprintf("%s.results.%02d.>", n.Prefix, partition)
}

// ParseResult reads the job id from a subject made by Result. Its error wraps ErrJobID.
func (n Names) ParseResult(subject string) (JobID, error) {
	rest, ok := strings.CutPrefix(subject, n.Prefix+".results.")
	if !ok {
		return JobID{}, fmt.Errorf("%w: subject %.200q", ErrJobID, subject)
	}
	tokens := strings.Split(rest, ".")
	id, err := parseTokens(tokens[1:])
	if err != nil {
		return JobID{}, fmt.Errorf("subject %.200q: %w", subject, err)
	}
	if n.Result(id) != subject {
		return JobID{}, fmt.Errorf("%w: subject %.200q has the wrong partition", ErrJobID, subject)
	}
	return id, nil
}

// Control is the subject of control messages about a run.
func (n Names) Control(runUID string) string { return n.Prefix + ".control." + runUID }

// ParseControl reads the run's UID from a subject made by Control.
func (n Names) ParseControl(subject string) (runUID string, ok bool) {
	uid, ok := strings.CutPrefix(subject, n.Prefix+".control.")
	return uid, ok && uidPattern.MatchString(uid)
}

// DeadLetter is the subject of a dead letter; runUID "" stands for a message of no known run.
func (n Names) DeadLetter(reason, runUID string) string {
	if !uidPattern.MatchString(runUID) {
		runUID = "-"
	}
	return fmt.Sprintf("%s.deadletters.%s.%s", n.Prefix, reason, runUID)
}

// DeadLetterOf is the subject of the dead letters of one attempt. A subject has a limit of letters:
// so none that may be redriven pushes out another one's.
func (n Names) DeadLetterOf(reason string, id JobID) string {
	return fmt.Sprintf("%s.deadletters.%s.%s", n.Prefix, reason, strings.Join(id.tokens(), "."))
}

// Durable is the name of the consumer that all workers of a topic share.
func Durable(topic string) string { return strings.ReplaceAll(topic, ".", "_") }

// AllPartitions are the numbers of all partitions, in order.
func AllPartitions() []int {
	all := make([]int, Partitions)
	for p := range all {
		all[p] = p
	}
	return all
}

// Partition is the partition of a run's results, 0 <= p < Partitions: FNV-1a of the UID.
func Partition(runUID string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(runUID)) // a hash never fails
	return int(h.Sum32() % Partitions)
}
