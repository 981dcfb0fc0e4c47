// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// plain is a value as the API server's decoder gives it.
func plain(t *testing.T, v Value) any {
	t.Helper()
	switch v.Kind() {
	case Null:
		return nil
	case True, False:
		return v.Kind() == True
	case Number:
		n, err := v.Number()
		if err != nil {
			t.Skip(err)
		}
		return n
	case String:
		return v.Text()
	case List:
		list := []any{}
		for i := range v.Len() {
			list = append(list, plain(t, v.Index(i)))
		}
		return list
	default:
		object := map[string]any{}
		for i := range v.Len() {
			object[v.Key(i)] = plain(t, v.At(i))
			if i > 0 && v.Key(i-1) >= v.Key(i) {
				t.Errorf("key %q stands after %q", v.Key(i), v.Key(i-1))
			}
			if got, ok := v.Lookup(v.Key(i)); !ok || got != v.At(i) {
				t.Errorf("key %q is not found", v.Key(i))
			}
		}
		if _, ok := v.Lookup("no such key"); ok {
			t.Error("there is a key that nobody wrote")
		}
		return object
	}
}

// canonical is the canonical form by the standard library.
func canonical(text []byte) (string, error) {
	for range 3 {
		var v any
		if err := utiljson.Unmarshal(text, &v); err != nil {
			return "", err
		}
		next, err := json.Marshal(v)
		if err != nil {
			return "", err
		}
		text = next
	}
	return string(text), nil
}

func check(t *testing.T, text string) {
	t.Helper()
	var want any
	wantErr := utiljson.Unmarshal([]byte(text), &want)
	if _, ok := Check([]byte(text), nil); ok != json.Valid([]byte(text)) {
		t.Fatalf("%.200q: valid %t", text, ok)
	}
	checkElements(t, text)
	d, err := Parse([]byte(text), nil)
	if err != nil {
		if json.Valid([]byte(text)) {
			t.Fatalf("%.200q: %v", text, err)
		}
		return
	}
	if !json.Valid([]byte(text)) {
		t.Fatalf("%.200q is no JSON and was taken", text)
	}
	out, err := d.Root().Canonical(nil)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%.200q: error %v, want %v", text, err, wantErr)
	}
	if wantErr != nil {
		return
	}
	if got := plain(t, d.Root()); !reflect.DeepEqual(want, got) {
		t.Errorf("%.200q:\n got %.300v\nwant %.300v", text, got, want)
	}
	if form, _ := canonical([]byte(text)); form != string(out) {
		t.Errorf("canonical form of %.200q:\n got %.300q\nwant %.300q", text, out, form)
	}
	checkPlain(t, d.Root(), out)
}

// checkPlain compares the plain form with the canonical one: where it is escaped, the two are one.
func checkPlain(t *testing.T, v Value, canonical []byte) {
	t.Helper()
	out, err := v.Plain(len(canonical), nil)
	var escaped bytes.Buffer
	json.HTMLEscape(&escaped, out)
	if err != nil || escaped.String() != string(canonical) || bytes.ContainsAny(canonical, "<>&\u2028\u2029") {
		t.Fatalf("plain form %.300q, %v\nof %.300q", out, err, canonical)
	}
	if out, err = v.Plain(len(out)-1, nil); !errors.Is(err, ErrTooLarge) || out != nil {
		t.Errorf("%.300q where one byte less may be, %v", out, err)
	}
}

// A writer stops where it has too much. It says so at once, however deep it is in lists.
//
// mutations: value without its bound; a place for each list around what is too large.
func TestAPlainFormThatIsTooLargeIsNotWritten(t *testing.T) {
	for name, text := range map[string]string{
		"many digits":   "[" + strings.Repeat("1e20,", 1<<20) + "1]",
		"deep in lists": strings.Repeat("[", 9_000) + "1e20,1" + strings.Repeat("]", 9_000),
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Parse([]byte(text), nil)
			if err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = d.Root().Plain(9_010, nil)
			runtime.ReadMemStats(&after)
			if most := uint64(len(text) + 1<<20); !errors.Is(err, ErrTooLarge) || after.TotalAlloc-before.TotalAlloc > most {
				t.Errorf("%d bytes allocated, more than %d: %.100v", after.TotalAlloc-before.TotalAlloc, most, err)
			}
		})
	}
}

func checkElements(t *testing.T, text string) {
	t.Helper()
	var want, got []json.RawMessage
	wanted := json.Unmarshal([]byte(text), &want) == nil && strings.HasPrefix(strings.TrimSpace(text), "[")
	ok := Elements([]byte(text), func(e []byte) { got = append(got, e) }, nil)
	if ok != wanted || ok && !slices.EqualFunc(got, want, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
		t.Errorf("elements of %.200q: %t\n got %.300q\nwant %.300q", text, ok, got, want)
	}
}

func examples() []string {
	return []string{
		`null`, ` true `, `false`, `0`, `-0`, `-0.0`, `1.0`, `1e2`, `1E400`, `-12`, `9223372036854775807`, `9223372036854775808`,
		`18446744073709551615`, `1e-7`, `1.5e21`, `123456789012345678901234567890`, `0.000001`, `5e-324`,
		`""`, `"a"`, `"\u0061\n\t\b\f\r\"\\\/"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\ude00\ud83d"`, "\"\xff\xfe\"", `"<>&\u2028` + "\u2028\u2029" + `"`,
		"\"\u007f\u0080\"", `"\u0000\u001f"`,
		`[]`, `{}`, `[[]]`, `[{}]`, `[1, [2, [3, {"a": [4]}]], 5]`, "[\n1 ,\t2\r]",
		`{"b":1,"a":2}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":[3]}`, `{"":0,"":{"":1}}`, `{"é":1,"\u00e9":2,"z":3,"\uffff":4,"😀":5}`, `{"a":{"c":1,"b":{"y":1,"x":[true,null]}},"A":[]}`,
		`{"a" : "b" , "c":[ ] }`, `"\u00g0"`, `"\u00"`, `"\x"`, `"\`, `"long enough for eight \" and \\ more"`, "\"long enough for eight \x1f\"", `01`, `-`, `1.`, `.5`, `1e`, `1e+`, `1e+05`, `+1`, `tru`, `truex`,
		`{"a":1 "b":2}`, `{1:2}`, `{"a":}`, `{,}`, `[,]`, `[1 2]`, `[1`, `{"a":1`, `"a`, "\ufeff1", "1\x00", "\v1", `[1]]`, `{}{}`,
		"{\"\xff\":1,\"\xfe\":2,\"\\ufffd\":3}",
		`{`, `[1,]`, `{"a"}`, `1 2`, ``, `"`, `nul`, `{"a":1,}`, "\"\x01\"",
		strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000), strings.Repeat("[", 11_000) + strings.Repeat("]", 11_000),
	}
}

// Mutations that this finds: of equal keys the first is kept; parts are not turned round; -0 is
// written as such.
func TestADocumentMeansWhatTheAPIServerMakesOfIt(t *testing.T) {
	for _, text := range examples() {
		check(t, text)
	}
}

func FuzzDocument(f *testing.F) {
	for _, text := range examples() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) < 1<<16 {
			check(t, text)
		}
	})
}

// mutation: Fields that takes a text for its end, keeps blanks around a value, or leaves keys
// escaped makes this fail.
func TestFieldsAreThoseOfTheText(t *testing.T) {
	fields, ok := Fields([]byte(" {\"a\" : [1, 2] ,\"\\u0061\":\"x\\\"y\",\"b\":{ \"c\": null } } "))
	want := []Field{{"a", []byte("[1, 2]"), 8}, {"a", []byte(`"x\"y"`), 25}, {"b", []byte(`{ "c": null }`), 36}}
	if !ok || !reflect.DeepEqual(fields, want) {
		t.Errorf("%v %+v", ok, fields)
	}
	for _, text := range []string{`[]`, `1`, ``, `{"a":1}x`, `{"a":1`, `{"a":nul}`} {
		if fields, ok := Fields([]byte(text)); ok {
			t.Errorf("%q has the fields %+v", text, fields)
		}
	}
}

// Mutation that this finds: nodes are appended to a slice that grows.
func TestADocumentTakesFiveTimesItsTextAtMost(t *testing.T) {
	for _, element := range []string{`0`, `{}`, `[]`, `{"":0}`, `{"a":1,"b":2}`, `"\n"`, `[[[[]]]]`, `{"\u0062":1,"\u0061":2}`} {
		t.Run(element, func(t *testing.T) {
			n := 4 << 20 / (len(element) + 1)
			text := []byte("[" + strings.Repeat(element+",", n-1) + element + "]")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			d, err := Parse(text, nil)
			runtime.ReadMemStats(&after)
			if err != nil || d.Root().Len() != n {
				t.Fatal(err)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > uint64(4*len(text)+64<<10) {
				t.Errorf("%d bytes of text took %d more", len(text), got)
			}
			if d.Bytes() > 5*len(text)+64 {
				t.Errorf("it says that it takes %d bytes for %d", d.Bytes(), len(text))
			}
		})
	}
}

func TestATextThatIsTooLargeIsRefused(t *testing.T) {
	if _, err := Parse(make([]byte, MaxBytes+1), nil); err == nil {
		t.Error("it was taken")
	}
}

func BenchmarkParse(b *testing.B) {
	for _, element := range []string{`{"a":1}`, `1`, `{"id":"0123456789","url":"https://example.org/a/b"}`, `{"\u0062":1,"\u0061":2}`, `"` + strings.Repeat("x", 60<<10) + `"`} {
		text := []byte("[" + strings.Repeat(element+",", 8<<20/(len(element)+1)-1) + element + "]")
		b.Run(fmt.Sprintf("%.12s", element), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(text, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
