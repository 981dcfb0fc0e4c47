// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Mutations that were seen red here and below: 7 taken for Sunday; N/STEP read as N alone; */2
// taken for an open field; names compared with case; possible always true.
func TestParseRefusesWhatIsNoCronTextWithItsField(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      `text "": need 5 fields`,
		"* * * *":                               `text "* * * *": need 5 fields (minute, hour, day of month, month, day of week), not 4`,
		"* * * * * *":                           "not 6",
		"60 * * * *":                            `minute "60": need 0 to 59`,
		"-1 * * * *":                            `minute "": need 0 to 59`,
		"+1 * * * *":                            `minute "+1": need 0 to 59`,
		"* 24 * * *":                            `hour "24": need 0 to 23`,
		"* * 0 * *":                             `day of month "0": need 1 to 31`,
		"* * * 13 *":                            `month "13": need 1 to 12, or jan to dec`,
		"* * * * 7":                             `day of week "7": need 0 to 6, or sun to sat; Sunday is 0`,
		"* * * * fri-mon":                       `day of week "fri-mon": the range ends before it begins`,
		"5-1 * * * *":                           `minute "5-1": the range ends before it begins`,
		"*/0 * * * *":                           `minute "*/0": need a step of 1 to 59 after /`,
		"*/x * * * *":                           "need a step",
		"*/60 * * * *":                          "need a step",
		"1/2/3 * * * *":                         "need a step",
		"1,,2 * * * *":                          `minute "": need 0 to 59`,
		"*-3 * * * *":                           `minute "*"`,
		"@every 5m":                             "need 5 fields",
		"@reboot":                               "need @hourly",
		"CRON_TZ=UTC 0 0 * * *":                 "a zone is no part of the text",
		"TZ=UTC 0 0 * * *":                      "a zone is no part of the text",
		"0 0 30 2 *":                            `day of month "30": no month of the text has such a day, so it never comes`,
		"0 0 31 4,6,9,11 *":                     "it never comes",
		strings.Repeat("1,", 200) + "1 * * * *": "at most 256",
	} {
		_, err := Parse(text)
		if fieldError, ok := errors.AsType[*FieldError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v (%T), want %s", text, err, fieldError, want)
		}
	}
}

func TestParseReadsTheDialectOfKubernetes(t *testing.T) {
	same := func(a, b string) {
		t.Helper()
		left, err1 := Parse(a)
		right, err2 := Parse(b)
		if err := errors.Join(err1, err2); err != nil || left != right {
			t.Errorf("%q and %q differ: %v", a, b, err)
		}
	}
	same("@hourly", "0 * * * *")
	same("@daily", "0 0 * * *")
	same("@midnight", "@daily")
	same("@weekly", "0 0 * * sun")
	same("@Monthly", "0 0 1 * ?")
	same("@yearly", "@annually")
	same(" 0  0 1 JAN\t* ", "@yearly")
	same("5/20 * * * *", "5-59/20 * * * *")
	same("5,25,45 * * * *", "5/20 * * * *")
	same("* * * * Mon-FRI", "* * * * 1-5")
	same("*/1 * * * *", "* * * * *")
}

func TestNewNamesTheTextAndTheZoneThatAreWrong(t *testing.T) {
	_, err := New([]string{"0 0 * * *", "x", "61 0 * * *"}, "Europe/Bärlin", Rules{})
	list, ok := err.(interface{ Unwrap() []error })
	if !ok || len(list.Unwrap()) != 3 {
		t.Fatalf("%v", err)
	}
	for i, want := range []int{1, 2, -1} {
		if wrong, ok := errors.AsType[*FieldError](list.Unwrap()[i]); !ok || wrong.Index != want {
			t.Errorf("error %d: %+v, want index %d", i, wrong, want)
		}
	}
	for _, zone := range []string{"Local", "../etc/passwd", "/etc/localtime", "CEST+1"} {
		if _, err := New(nil, zone, Rules{}); err == nil {
			t.Errorf("zone %q was taken", zone)
		}
	}
	none, err := New(nil, "", Rules{})
	if err != nil {
		t.Fatal(err)
	}
	if slot, ok := none.Next(time.Unix(0, 0)); ok {
		t.Errorf("no text has slot %v", slot)
	}
}

// Whatever is parsed has slots, in order, whole minutes that match.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"*/5 * * * *", "0 0 29 2 *", "@daily", "1-5/2,7 3 ? jan-mar MON", "0 0 31 2 0", "59 23 31 12 6", "?/7 * * * *", "0-0/9 0 1 1 0-6", "TZ=x * * * * *"} {
		f.Add(seed, int64(1_700_000_000))
	}
	f.Fuzz(func(t *testing.T, text string, at int64) {
		e, err := Parse(text)
		if err != nil {
			if _, ok := errors.AsType[*FieldError](err); !ok {
				t.Fatalf("%q: %T", text, err)
			}
			return
		}
		table, err := New([]string{text}, "", Rules{})
		if err != nil {
			t.Fatal(err)
		}
		after := time.Unix(at%(1<<33), 0).UTC()
		for range 3 {
			next, ok := table.Next(after)
			if !ok || !next.After(after) || next.Unix()%60 != 0 || !matches(&e, next) || !isSlot(table, next) {
				t.Fatalf("%q after %v: %v %v", text, after, next, ok)
			}
			after = next
		}
	})
}
