// SPDX-License-Identifier: Apache-2.0

// Package liveness watches whether workers do the jobs that runs wait for.
//
// For example, the only worker of topic demo.echo is shut down. The server stops seeing its pull
// requests, two questions in a row find that nobody pulls, and each run that waits for a job of the
// topic is woken; its status then says WaitingForWorkers.
//
//	run ---- Watch(key, topics) --->  Watcher  --- ask(topic) ---> internal/bus/jobs ---> NATS
//	run <--- State(topic) ----------   |
//	run <--- wake(key) ----------------+
//
// NATS is asked about each topic once for all runs of the topic. The package imports neither NATS
// nor Kubernetes: ask is a function.
//
// # States of a topic
//
//	Unknown       NATS does not answer, or was not asked twice yet
//	Pulling       workers pull, or say that a job is in progress, or took or did one in the last second
//	NoConsumer    the topic has no consumer in NATS: whether there are workers is not known, and they get no jobs
//	NobodyPulls   no worker pulls, and none that has a job says that it is in progress
//	Stuck         there are workers, but what waits does not move:
//	                - jobs are queued, and workers that pull do not get them, or
//	                - jobs are queued behind busy workers, and for StuckAfter none was done or given out, or
//	                - jobs are given out again and again (2 times at least), and for StuckAfter none was done, or
//	                - all jobs are with workers, and for two fifths of AckWait none said "in progress"
//	Full          jobs are queued and do not move, as in the first two cases of Stuck, but as many are
//	              with workers as may be, and one of these says that it is in progress
//
// Liveness reports Unknown until a topic has been watched for one full interval.
//
// A worker whose places are all taken does not pull, so a missing pull request alone means nothing.
// What counts then is the last sign of a worker. A worker with a job gives one every third of
// AckWait. So after two fifths of AckWait without a sign, no job is with a worker that lives. The
// function judge has the rules in their order; it is a pure function of the answers.
//
// With an AckWait of 30 s, a worker that takes jobs and hangs is reported 12 s after its last sign,
// plus the time of two answers: 18.4 s. The first time that its job is given out again counts as a
// sign: another worker gets the same patience.
//
// A question that fails forgets what was seen before it. From then on it takes StuckAfter to see
// that nothing moves.
//
// # Guarantees
//
//   - A state is reported when two questions in a row find it. One answer alone, or a failed
//     question between two, changes nothing.
//   - When nobody pulls, or there is no consumer, that is reported within 1 s + 2 x (Every + tick)
//     and the time of two answers: 7.4 s. The first run is woken a tick later. The time counts from
//     when the server no longer sees pull requests: at once if a client closes its connection or
//     its process dies, else when the request expires. If a worker died or gave up while it had a
//     job, it counts from two fifths of AckWait after its last sign, at most 12 s: before that it
//     looks like one that works.
//   - A topic is asked about at most once in Every, however many runs watch it and however often
//     they come and go.
//   - At most Width questions are under way, each for at most AskTimeout. A question that hangs
//     delays no other topic's while fewer than Width hang.
//   - When the state of a topic changes, each run that watches it is woken once, those that have
//     watched it the longest first, at most WakeBatch of all runs per tick. Owners of runs have
//     turns, so one with many runs keeps back only its own. A run that waits to be woken is not
//     woken a second time for a later change: it reads the state when it is woken. A run that comes
//     later reads the state and is not woken for it.
//   - No change is missed by a run that calls Watch first and State after it.
//   - Run owns all goroutines: Width askers and itself. It returns when they have ended. Nothing is
//     asked or woken outside it.
//
// # Bounds
//
// At most MaxTopics topics are watched. With owners, one begins as many at most, and all together
// twice as many: of n owners that want more than there is each has one part of n+1 ([share.Room]).
// A topic has the place of the owner that began it, until nobody watches it. Those beyond stay
// Unknown until others are no longer watched and their runs call Watch again; the log names one of
// them, once a minute at most. A topic is forgotten when it is due and no run watches it. Memory:
// one entry per run and topic, and one per run that is to be woken.
//
// # What it does not see
//
// Workers that ask without waiting, say once a minute, are seen only by what they take: between two
// visits nobody pulls. While jobs move, slow workers are not Stuck. The state of a topic does not
// say whose job a worker has.
package liveness
