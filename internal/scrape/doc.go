// SPDX-License-Identifier: Apache-2.0

// Package scrape lets those get the metrics who may, as the API server says.
//
//	GET /metrics, Authorization: Bearer TOKEN
//	   |
//	   |  may whoever has TOKEN get /metrics?   SelfSubjectAccessReview, with TOKEN
//	   +--------------------------------------------------------------------------> API server
//	   |
//	200  yes, also for half a minute after it was asked, and for an hour while it is away: no answer
//	     comes, or a 5xx. It is then asked once in half a minute
//	401  no token, or the API server does not know it
//	403  no
//	429  more tokens than it asks about: of one address, or of all. Tokens that were good within the last hour have a
//	     limit of their own, so nobody else keeps them out
//	503  the API server is away, and did not say yes within the last hour, or it refuses to answer
//
// The question is asked with the token itself. So the operator needs no right to review tokens or
// rights of others, which a TokenReview and a SubjectAccessReview would take (ADR 57). A question
// goes on when its request ends, and a refusal, as of too many questions, is no outage: whose right
// was taken away cannot have the API server seem away.
package scrape
