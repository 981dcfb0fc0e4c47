// SPDX-License-Identifier: Apache-2.0

// Package webhook refuses the creation of a WorkflowRun, with 429, if its policy says onLimit:
// Reject and its tenant is at its limit. It is optional: policies with onLimit: Queue, the default,
// do not need it.
//
// For example, a tenant with limit 2 has two runs under way. kubectl create of a third fails with
// TenantAtCapacity and a Retry-After header, and no object is stored.
//
// # What it is, and what it is not
//
// The limit (G4) does not rest on the webhook. The controller admits every run, however it was
// created, and asks the same quota. The webhook only refuses before there is an object, so that a
// client can go elsewhere. If the webhook is down and its failurePolicy is Ignore, a run beyond the
// limit is created and waits, as with Queue.
//
//	CREATE workflowruns --> API server: schema, CEL rules, match conditions
//	                          |
//	                          v
//	   policy of the class, from the cache ------------- not Reject ------------------------------------> allowed, without a question
//	   tenant, from the namespace; limit; name --------- not allowed, no limit, name taken -------------> allowed, without a question
//	   idempotency key, if it has one ------------------ another run has it: 409 Conflict, DuplicateRun or IdempotencyConflict
//	   quotas.Reserve(UID of the object, 10 s) --------- no room: 429 TooManyRequests, TenantAtCapacity
//	   the key for 10 s -------------------------------- no other run's --------------------------------> allowed
//	                          +-------------------------- no answer: 503 ServiceUnavailable, AdmissionUnavailable,
//	                                                      AdmissionBusy or AdmissionRebuilding
//
// # What is refused whatever the policy
//
// A field that is nested more than 100 deep is refused with 422 Invalid, cause InvalidSpec. The
// operator would end such a run as InvalidSpec, but the object would be stored, and jq reads
// nothing of a list with such an object in it. That is what happens without the webhook, while it
// is down and may be passed over, and to runs that a match condition leaves out.
//
// So is a spec that is larger than a run may have, and more than 64 KiB of labels, finalizers and
// owner references together: each replica keeps all runs in memory. Edits of a run's metadata are
// not seen.
//
// So are inputs of a run that follows a Workflow, if they do not fit its parameters. Four runs at a
// time are looked at, which namespaces share. A run that had no turn after a third of its time is
// let in unseen, as it is without the webhook: the operator ends it as InvalidSpec.
//
// # What is warned of
//
// A run that is let in, and was made by nobody's controller, gets a warning for each field that is
// for jobs and stands at a step of another kind, as timeoutSeconds at an approval: kubectl shows
// it, and the run goes on without the field.
//
// # Guarantees
//
//   - Of runs of a Reject policy with one idempotency key that are created at the same time one is
//     allowed, and the others are told its name. The key is reserved as slots are, by UID, so it
//     stands before the run exists; the controller's Claim makes it the run's. It is asked for
//     first, so that a repetition is told so though there is no room, and claimed last, so that
//     a refusal for the key names a run that has room. A run that loses it in between gives
//     its slot up.
//   - Of runs of a Reject policy that are created at the same time, no more are allowed than have
//     room: each that is allowed has a reservation by its UID, which validating admission sees as
//     it will be stored. The controller's Admit turns it into a slot.
//   - Each refusal but those for the key and the depth has details.retryAfterSeconds, hence a
//     Retry-After header, and one cause whose type is the reason; the message begins with that
//     reason. 429 says tenant, policy, limit and how it is used.
//   - A dry run gets the same answer and leaves nothing behind.
//   - A request is answered within a second less than the API server waits, and within 9 s
//     in any case.
//   - A policy that does not reject costs two reads from memory, and works with Redis down; a run
//     that follows a Workflow costs one read of that, too.
//
// # Reservations
//
// They last for 10 s (reservation). That covers the way of the object into the store and through
// the watch to the controller's first look; a run that is looked at later is in the queue, in the
// order of creation. If the creation fails after the webhook said yes (another webhook, a quota),
// the slot stays reserved for as long: the API server asks validating webhooks at the same time,
// and does not report the end. A name that is taken would be the common case of that, so it is
// looked up first, in the cache and then live, and the API server is left to say AlreadyExists.
//
// # Whom it does not judge
//
// A run of a tenant that its namespace may not name is let through without a question: nothing
// is reserved with a tenant that a namespace may not name, and the controller ends the run
// (TenantNotAllowed). So its owner finds the same condition on the run with and without the
// webhook, and whatever the policy says; likewise what else the controller refuses. Runs that
// are created suspended or shut down ask for no slot now; the former wait in the queue when
// they are resumed.
//
// A run with a controller among its owners that is a WorkflowRun claims to be a child run, and
// child runs are in the slot of their root. A claim alone gets no run in: the controller lets a
// child run in only under a parent whose status names it by its uid.
//
// # Failure handling
//
// What cannot be decided is a 503 with its reason: only a yes of the quota or a case above lets a
// run in. A quota that cannot be reached is asked three times, so that a pause of the process or a
// restart of Redis need not be seen. Of a burst 16 are with the quota at a time, the others wait,
// except for strategy Lock, whose waits for one tenant must not keep up others. While policies
// cannot be read even runs of classes that do not reject get 503 (AdmissionUnavailable), since the
// policy of their class is not known.
//
// A process listens once its caches are synced. When it ends it answers what it has been asked,
// for a second.
//
// # Certificates
//
// Either from a directory, read again when it changes, or made and renewed by package certs.
package webhook
