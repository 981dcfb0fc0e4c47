// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// expirySoon is below the lead with which the operator renews its authority, a year: who sees it
// has a renewal that does not work.
const expirySoon = 30 * 24 * time.Hour

func judgeWebhook(f Facts) []Finding {
	w := f.Webhook
	switch {
	case w.Why != "":
		return unreadAll(w.Unread, WebhookAuthority, WebhookReached)
	case w.Missing:
		return append(WebhookAuthority.ok("the webhook is not installed"), WebhookReached.ok("the webhook is not installed")...)
	}
	return append(w.authority(f.Now), w.reached()...)
}

func (w Webhook) authority(now time.Time) []Finding {
	const renew = "look at the operator's log (or cert-manager's) for the renewal; docs/admission.md has both ways"
	if w.Broken != "" {
		return []Finding{WebhookAuthority.find(Failed, renew, "the CA bundle of the webhook cannot be used: %s", w.Broken)}
	}
	var last Authority
	valid := 0
	for _, a := range w.Authorities {
		if !now.Before(a.From) && now.Before(a.To) {
			valid++
		}
		if a.To.After(last.To) {
			last = a
		}
	}
	until := last.To.UTC().Format(time.RFC3339)
	switch {
	case valid == 0:
		return []Finding{WebhookAuthority.find(Failed, renew, "no certificate of the webhook's CA bundle is valid now; the last one (%s) is valid until %s", last.Subject, until)}
	case last.To.Sub(now) < expirySoon:
		return []Finding{WebhookAuthority.find(Warning, renew, "the CA bundle of the webhook expires at %s", until)}
	}
	return WebhookAuthority.ok("the CA bundle of the webhook is valid until %s", until)
}

// passes tells that the webhook is not asked for runs of a class that the policy lists.
func (w Webhook) passes(p *v1alpha1.LockPolicy) bool {
	return w.Classes != nil && slices.ContainsFunc(p.Spec.WorkloadClasses, func(class string) bool { return !slices.Contains(w.Classes, class) })
}

func (w Webhook) reached() []Finding {
	const look = "look at the Service of the webhook, its endpoints, and network policies between API server and operator"
	switch {
	case w.Call.Unreached != "":
		return []Finding{WebhookReached.find(Failed, look, "the API server does not reach the webhook: %s", w.Call.Unreached)}
	case w.Endpoints == 0:
		return []Finding{WebhookReached.find(Failed, look, "the Service of the webhook has no endpoint that serves")}
	case w.Call.Why != "":
		return WebhookReached.unread(w.Call.Unread)
	case w.Ignores && w.Endpoints < 0:
		return WebhookReached.unread(Unread{Why: "with failurePolicy Ignore the API server does not say whether it reached the webhook, and its endpoints could not be read", Hint: look})
	case w.Ignores:
		return WebhookReached.ok("the webhook has %d endpoints that serve; with failurePolicy Ignore the API server does not say whether it reaches them", w.Endpoints)
	}
	if w.Asked.Why != "" {
		return WebhookReached.unread(w.Asked)
	}
	return WebhookReached.ok("a dry run of a create passed the webhook")
}
