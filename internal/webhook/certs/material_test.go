// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"
)

var hosts = []string{"hook.ns.svc", "127.0.0.1"}

func birth() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// renew renews at a time, and fails the test where that cannot be.
func renew(t *testing.T, m material, now time.Time, hosts ...string) (material, bool) {
	t.Helper()
	next, changed, err := m.renewed(now, hosts)
	if err != nil {
		t.Fatal(err)
	}
	return next, changed
}

// trusted says whether somebody with the bundle takes the serving certificate at a time.
func trusted(bundle []byte, serving *pair, now time.Time, host string) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	_, err := serving.cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: host})
	return err
}

// What is renewed when: a is the material made at birth, named are those who sign after it.
func TestRenewal(t *testing.T) {
	at := func(d time.Duration) time.Time { return birth().Add(d) }
	const hosts2 = "other.ns.svc"
	tests := map[string]struct {
		now              time.Time
		hosts            []string
		authority, leaf  bool // made anew
		authorities      int
		signedByTheFirst bool
	}{
		"nothing is due on the same day":                        {at(time.Hour), hosts, false, false, 1, true},
		"nor before the last 30 days":                           {at(60*day - time.Minute), hosts, false, false, 1, true},
		"the serving certificate in its last 30 days":           {at(60 * day), hosts, false, true, 1, true},
		"the serving certificate when the names change":         {at(day), []string{hosts2}, false, true, 1, true},
		"the order of names does not matter":                    {at(day), []string{hosts[1], hosts[0]}, false, false, 1, true},
		"no authority before its last year":                     {at(4*365*day - time.Minute), hosts, false, true, 1, true},
		"the next authority in the last year, and it waits":     {at(4*365*day + time.Minute), hosts, true, true, 2, true},
		"a serving certificate that ends with its authority":    {at(5*365*day - 60*day), hosts, true, true, 2, true},
		"an authority with too little left for it does not":     {at(5*365*day - time.Hour), hosts, true, true, 2, false},
		"an authority that ended is gone, and the next signs":   {at(5*365*day + time.Minute), hosts, true, true, 1, false},
		"a clock that is behind does not replace what is there": {at(-skew), hosts, false, false, 1, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			first, changed := renew(t, material{}, birth(), hosts...)
			if !changed || len(first.authorities) != 1 {
				t.Fatal("nothing was made")
			}
			got, changed := renew(t, first, test.now, test.hosts...)
			if want := test.authority || test.leaf; changed != want {
				t.Errorf("changed is %v", changed)
			}
			newest := got.authorities[len(got.authorities)-1]
			if made := !newest.cert.Equal(first.authorities[0].cert); made != test.authority || len(got.authorities) != test.authorities {
				t.Errorf("%d authorities, new: %v", len(got.authorities), made)
			}
			if made := !got.serving.cert.Equal(first.serving.cert); made != test.leaf {
				t.Errorf("serving certificate new: %v", made)
			}
			// mutation: the newest authority always signs: "and it waits" fails.
			if by := got.serving.cert.CheckSignatureFrom(first.authorities[0].cert) == nil; by != test.signedByTheFirst {
				t.Errorf("signed by the first authority: %v", by)
			}
			if test.signedByTheFirst && got.serving.cert.NotAfter.After(first.authorities[0].cert.NotAfter) {
				t.Error("the serving certificate outlives its authority")
			}
			if again, changed := renew(t, got, test.now, test.hosts...); changed || len(again.authorities) != test.authorities {
				t.Error("renewed once more at the same time")
			}
			for _, h := range test.hosts {
				if err := trusted(got.bundle(), got.serving, test.now.Add(2*skew), h); err != nil && test.now.After(birth()) {
					t.Errorf("not trusted for %s: %v", h, err)
				}
			}
		})
	}
}

// A replica whose clock is ahead, or behind, shares a Secret with one whose clock is right (HA96).
//
// mutation: a serving certificate of the future that is kept, an authority of the future that
// counts or signs, a replacement that ends before what it replaces, or clocks that differ by less
// than an hour and replace what the other made makes this fail.
func TestAClockThatIsAheadDoesNoHarmForLong(t *testing.T) {
	for name, c := range map[string]struct {
		age, off time.Duration // of the first material, and how wrong the clock is
		spoils   bool          // what it makes is replaced
		agrees   bool          // it makes nothing more once the others have put things right
	}{
		"half an hour, and nothing was there":    {-1, 30 * time.Minute, false, true},
		"half an hour, as the certificate ends":  {60*day - time.Minute, 30 * time.Minute, false, true},
		"5 h, and nothing was there":             {-1, 5 * time.Hour, true, true},
		"5 h, as the certificate ends":           {60*day - time.Minute, 5 * time.Hour, true, true},
		"20 h, and nothing was there":            {-1, 20 * time.Hour, true, true},
		"20 h, as the certificate ends":          {60*day - time.Minute, 20 * time.Hour, true, true},
		"two months":                             {day, 61 * day, true, true},
		"two months, and nothing was there":      {-1, 61 * day, true, true},
		"into the last year of the authority":    {0, 4*365*day + 90*day, true, true},
		"past the end of the authority":          {day, 6 * 365 * day, true, false},
		"past it, and nothing was there":         {-1, 6 * 365 * day, true, false},
		"half an hour behind":                    {0, -30 * time.Minute, false, true},
		"5 h behind":                             {0, -5 * time.Hour, false, true},
		"two days behind":                        {0, -2 * day, false, true},
		"two days behind, and it was there":      {10 * day, -2 * day, false, true},
		"two months behind, and new authority":   {0, -61 * day, false, true},
		"three years behind":                     {0, -3 * 365 * day, false, true},
		"as far behind as an authority is valid": {0, -5 * 365 * day, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var first material
			if c.age >= 0 {
				first, _ = renew(t, first, birth().Add(-c.age), hosts...)
			}
			wrong, _ := renew(t, first, birth().Add(c.off), hosts...)
			good, changed := renew(t, wrong, birth(), hosts...)
			if changed != c.spoils {
				t.Errorf("changed is %v", changed)
			}
			if err := trusted(good.bundle(), good.serving, birth().Add(2*time.Hour), hosts[0]); err != nil {
				t.Error(err)
			}
			if _, changed := renew(t, good, birth(), hosts...); changed {
				t.Error("renewed once more at the same time")
			}
			if _, changed := renew(t, good, birth().Add(c.off), hosts...); changed == c.agrees {
				t.Errorf("the clock that is wrong makes it anew: %v", changed)
			}
		})
	}
}

// Over twelve years nobody who has the bundle of an hour ago ever meets a certificate that it
// does not trust.
//
// mutation: authorities that sign at once, a serving certificate that outlives its authority, or
// one renewed after its end make this fail.
func TestTwelveYearsWithoutAGap(t *testing.T) {
	now := birth()
	m, _ := renew(t, material{}, now, hosts...)
	known, authorities, renewals := m.bundle(), 1, 0
	for now.Before(birth().Add(12 * 365 * day)) {
		// Alternately half an hour and two days, so that something due in both is met
		// on either side.
		for _, step := range []time.Duration{30 * time.Minute, 48 * time.Hour} {
			if step > settle {
				known = m.bundle()
			}
			now = now.Add(step)
			next, changed := renew(t, m, now, hosts...)
			if changed {
				renewals++
			}
			if !next.authorities[len(next.authorities)-1].cert.Equal(m.authorities[len(m.authorities)-1].cert) {
				authorities++
			}
			if err := trusted(known, next.serving, now, "127.0.0.1"); err != nil {
				t.Fatalf("after %s: %v", now.Sub(birth()), err)
			}
			if len(next.authorities) > 2 {
				t.Fatalf("%d authorities", len(next.authorities))
			}
			m = next
		}
	}
	if authorities != 3 || renewals < 70 {
		t.Errorf("%d authorities and %d renewals", authorities, renewals)
	}
}

func TestMaterialSurvivesTheSecret(t *testing.T) {
	m, _ := renew(t, material{}, birth(), hosts...)
	m, _ = renew(t, m, birth().Add(4*365*day+day), hosts...) // two authorities
	data, err := m.data()
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.authorities) != 2 || !bytes.Equal(got.bundle(), m.bundle()) || !got.serving.cert.Equal(m.serving.cert) {
		t.Error("not what was stored")
	}
	if _, changed := renew(t, got, birth().Add(4*365*day+day), hosts...); changed {
		t.Error("what was read is not as good as what was stored")
	}
}

// mutation: keys that are not compared with their certificates make "another key" pass.
func TestUnusableSecrets(t *testing.T) {
	m, _ := renew(t, material{}, birth(), hosts...)
	good, err := m.data()
	if err != nil {
		t.Fatal(err)
	}
	other, _ := renew(t, material{}, birth(), hosts...)
	foreign, err := other.data()
	if err != nil {
		t.Fatal(err)
	}
	with := func(entry string, text []byte) map[string][]byte {
		d := maps.Clone(good)
		d[entry] = text
		return d
	}
	tests := map[string]map[string][]byte{
		"nothing":                     {},
		"no authority":                with(entryAuthorities, nil),
		"no key of the authority":     with(entryAuthorityKeys, nil),
		"another key":                 with(entryServingKey, foreign[entryServingKey]),
		"another key of an authority": with(entryAuthorityKeys, foreign[entryAuthorityKeys]),
		"no PEM":                      with(entryServing, []byte("certificate")),
		"PEM of something else":       with(entryServing, good[entryServingKey]),
		"PEM of garbage":              with(entryServing, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")),
		"a key of garbage":            with(entryServingKey, []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")),
		"too many authorities": func() map[string][]byte {
			d := with(entryAuthorities, bytes.Repeat(good[entryAuthorities], maxAuthorities+1))
			d[entryAuthorityKeys] = bytes.Repeat(good[entryAuthorityKeys], maxAuthorities+1)
			return d
		}(),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(data); !errors.Is(err, errUnusable) {
				t.Errorf("error %v", err)
			}
		})
	}
	// The serving certificate of another authority is readable, and no good.
	mixed := material{authorities: m.authorities, serving: other.serving}
	if got, changed := renew(t, mixed, birth(), hosts...); !changed || !slices.Equal(got.bundle(), m.bundle()) {
		t.Error("a certificate of an unknown authority is served")
	}
}

func FuzzParse(f *testing.F) {
	m, _, err := material{}.renewed(birth(), hosts)
	if err != nil {
		f.Fatal(err)
	}
	data, err := m.data()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[entryAuthorities], data[entryAuthorityKeys])
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte{})
	f.Fuzz(func(t *testing.T, certs, keys []byte) {
		pairs, err := parsePairs(certs, keys)
		if (err == nil) != (len(pairs) > 0) {
			t.Errorf("%d pairs and error %v", len(pairs), err)
		}
	})
}
