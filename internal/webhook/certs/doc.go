// SPDX-License-Identifier: Apache-2.0

// Package certs makes and renews the certificates of the admission webhook, so that nothing has to
// be installed for it: an authority and a serving certificate in a Secret, which all replicas
// share, and the authorities in the caBundle of the operator's own ValidatingWebhookConfiguration.
//
//	                renewed (pure)                    trust                          serve
//	Secret ------------------------> Secret' ------------------> caBundle ------------------> GetCertificate
//	read live, every 30 s            written with                of all webhooks of           new connections;
//	                                 its resourceVersion         the configuration            old ones stay
//
// All replicas do the same, also those that do not lead, since all serve. If two write at the same
// time, the API server refuses one of them, which reads again.
//
// # Times
//
//	authority    5 years; the next one is made a year before the end, and signs after an hour in the bundle
//	serving      90 days, or as long as its authority; renewed 30 days before the end
//
// # Guarantees
//
//   - A renewal in good time is not noticed by the API server: a serving certificate is used only
//     after the authority that signed it is in the caBundle, and a new authority has been there for
//     an hour before it signs. Nothing is restarted.
//   - Clocks that differ by up to an hour do no harm: everything is valid from an hour before
//     it was made.
//   - What a clock made that is more than an hour ahead is replaced by the next replica that looks
//     and whose clock is right, with a certificate that does for both. Where that clock is past the
//     end of the authority, each replaces the other's, once a look, until the clock is right.
//   - To a clock that is behind by more than an hour, that of the others is ahead. It replaces what
//     they made, once after each renewal, by one that is as good to all. Where it is behind by
//     the life of an authority, each replaces the other's, once a look, until the clock is right.
//   - What is in the Secret and cannot be used (not PEM, keys that do not fit, other names, ended)
//     is made anew, and so is a Secret that was deleted: that is the way to replace a key that
//     leaked. Until each replica has looked, for half a minute, calls of the API server may fail,
//     and the webhook's failurePolicy applies.
//   - A caBundle that another client changes is put right within half a minute.
//
// # Failure handling
//
// While the API server cannot be reached, or refuses, what was read before stays in use, and it is
// tried again after 5 s. A renewal by the same authority is used also where only the configuration
// cannot be read or written. A process that has no certificate at all serves one that is not in the
// bundle yet: another replica may be about to write it.
package certs
