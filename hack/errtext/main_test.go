// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// mutation: each of these makes a row fail: Errorf or New left out, arguments that are not searched
// in depth, a marker without a reason, or one for the whole file.
func TestWhatMakesAnErrorOfAText(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		bad  bool
	}{
		"%s with its text":               {`fmt.Errorf("read: %s", err.Error())`, true},
		"%v with its text":               {`fmt.Errorf("read: %v", err.Error())`, true},
		"a concatenation":                {`errors.New("read: " + err.Error())`, true},
		"a concatenation in a format":    {`fmt.Errorf("read: " + err.Error())`, true},
		"its text, changed":              {`errors.New(strings.TrimSpace(err.Error()))`, true},
		"the text of a field":            {`errors.New(w.cause.Error())`, true},
		"one in another":                 {`fmt.Errorf("a: %w", errors.New(err.Error()))`, true},
		"wrapped":                        {`fmt.Errorf("read: %w", err)`, false},
		"one made in another":            {`fmt.Errorf("a: %w", errors.New("b"))`, false},
		"a text of no error":             {`errors.New(w.text())`, false},
		"a method with arguments":        {`errors.New(w.Error(1))`, false},
		"a message that is no error":     {`log.Info("read", "cause", err.Error())`, false},
		"with a reason":                  {`errors.New(err.Error()) // errtext: it has lines`, false},
		"with a marker without a reason": {`errors.New(err.Error()) // errtext:`, true},
		"with a reason on another line":  {"errors.New(err.Error())\n// errtext: it has lines", true},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkFile("x.go", []byte("package x\n\nfunc f() {\n\t"+c.line+"\n}\n"))
			if bad := err != nil && strings.HasPrefix(err.Error(), "x.go:4: an error is made of the text of another"); bad != c.bad {
				t.Errorf("found %t: %v", bad, err)
			}
		})
	}
}
