// Package liveness tells whether anybody does the jobs that runs wait for. It asks NATS about the workers of each topic, now and then and
// once for all runs of the topic, and wakes these runs when the answer changes. It knows neither NATS nor Kubernetes: ask is a function.
//
//	run ---- Watch(key, topics) --->  Watcher  --- ask(topic) ---> internal/bus ---> NATS
//	run <--- State(topic) ----------   |
//	run <--- wake(key) ----------------+
//
// # States of a topic
//
//	Unknown       nothing can be said: NATS does not answer, or was not asked twice yet
//	Pulling       workers pull, or have jobs and say so, or took or did one within the last second
//	NobodyPulls   no worker pulls, and none that has a job says that it is in progress
//	Stuck         there are workers, but what waits does not move:
//	                - jobs are queued and are not given to the workers that pull (too many are unanswered), or
//	                - jobs are queued behind busy workers, and for StuckAfter none was done nor given to a worker, or
//	                - jobs are given to workers again and again (2 times at least), and for StuckAfter none was done, or
//	                - all jobs are with workers, and for two fifths of AckWait none said that one is in progress
//
// A worker whose places are all taken does not pull, so no pull request alone means nothing: what counts then is when workers last gave
// a sign. One with a job gives it every third of AckWait, so after two fifths of AckWait without one, no job is with anybody.
// See judge for the rules in their order; it is a pure function of the answers.
//
// With an AckWait of 30 s a worker that takes jobs and hangs is told 12 s after its last sign, and the time of two answers: 18.4 s. That its
// job is given out again is one, the first time: another worker gets the same patience.
//
// A question that fails forgets what was seen before it. It takes StuckAfter from then on to see that nothing moves.
//
// # Guarantees
//
//   - A state is told when two questions in a row say so. One answer alone, or a failed question between two, changes nothing.
//   - When nobody pulls, it is told within 1 s + 2 x (Every + tick) and the time of two answers: 7.4 s; the first run is woken a tick
//     later. It counts from when the server no longer sees pull requests (at once if a client closes its connection or its
//     process dies; else when the request expires) or, if a worker died or gave up while it had a job, from two fifths of AckWait after
//     its last sign, at most 12 s: before that nobody can tell it from one that works.
//   - A topic is asked about at most once in Every, however many runs watch it and however often they come and go.
//   - At most Width questions are under way, each for at most AskTimeout; a question that hangs delays no other topic's while fewer than
//     Width hang.
//   - When the state of a topic changes, each run that watches it is woken once, those that have watched it the longest first, at
//     most WakeBatch of all runs per tick. A run that waits for its wake is not woken a second time for a later change: it looks
//     at the state when it is woken. A run that comes later reads the state and is not woken for it.
//   - No change is missed by a run that calls Watch first and State after it.
//   - Run owns all goroutines: Width askers and itself. It returns when they have ended. Nothing is asked or woken outside it.
//
// # Bounds
//
// MaxTopics topics are watched; those beyond stay Unknown until others are no longer watched and their runs call Watch again. A topic
// is forgotten when it is due and nobody watches it. Memory: one entry per run and topic, and one per run that is to be woken.
//
// # What it does not tell
//
// Workers that ask without waiting, say once a minute, are seen only by what they take: between two visits nobody pulls. While jobs
// move, who is slow is not Stuck. That a worker has a job says nothing about whose it is.
package liveness
