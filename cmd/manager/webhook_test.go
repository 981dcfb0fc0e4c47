// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/webhook"
)

// mutation: a default other than 0 makes the first row fail; each check taken out makes
// its row fail.
func TestOptionsOfTheWebhook(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		off  bool
		want []string // words of the error; none: accepted
	}{
		"it is off by default":                      {nil, true, nil},
		"off needs nothing else":                    {[]string{"--webhook-bind-address=0", "--webhook-service="}, true, nil},
		"all addresses":                             {[]string{"--webhook-bind-address=:9443"}, false, nil},
		"one address":                               {[]string{"--webhook-bind-address=[::1]:9443"}, false, nil},
		"certificates of somebody else":             {[]string{"--webhook-bind-address=:9443", "--webhook-cert-dir=/d", "--webhook-service=", "--webhook-configuration="}, false, nil},
		"a port alone":                              {[]string{"--webhook-bind-address=9443"}, false, []string{`--webhook-bind-address "9443": need [HOST]:PORT`}},
		"no port":                                   {[]string{"--webhook-bind-address=host:"}, false, []string{"--webhook-bind-address"}},
		"port 0 would be one that nobody knows":     {[]string{"--webhook-bind-address=:0"}, false, []string{"--webhook-bind-address"}},
		"no such port":                              {[]string{"--webhook-bind-address=:65536"}, false, []string{"--webhook-bind-address"}},
		"own certificates for no service":           {[]string{"--webhook-bind-address=:1", "--webhook-service="}, false, []string{"--webhook-service: needed"}},
		"own certificates and nobody to trust them": {[]string{"--webhook-bind-address=:1", "--webhook-configuration="}, false, []string{"--webhook-configuration: needed"}},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(t, nil, c.args...)
			if (err != nil) != (len(c.want) > 0) {
				t.Fatalf("error: %v, want words %q", err, c.want)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q lacks %q", err, w)
				}
			}
			if o.webhook.off() != c.off {
				t.Errorf("off is %v", !c.off)
			}
		})
	}
}

// mutation: addWebhook that goes on when it is off fails here for the manager that is missing.
func TestNothingIsServedWhileTheWebhookIsOff(t *testing.T) {
	o, err := parse(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := addWebhook(nil, o, webhook.Options{}); err != nil {
		t.Error(err)
	}
}
