// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	day = 24 * time.Hour

	authorityLife = 5 * 365 * day
	authorityLead = 365 * day // the next one is made that long before the end
	servingLife   = 90 * day
	selfLife      = 365 * day
	servingLead   = 30 * day // renewed that long before the end
	settle        = time.Hour
	skew          = time.Hour // clocks may differ by that much
)

// pair is a certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// material is what the Secret holds. The zero value holds nothing.
type material struct {
	authorities []pair // oldest first
	serving     *pair
}

// renewed is the material as it should be at a time, for the given DNS names and IP addresses;
// changed says whether it is another one.
func (m material) renewed(now time.Time, hosts []string) (next material, changed bool, err error) {
	next = material{authorities: slices.Clone(m.authorities), serving: m.serving}
	next.authorities = slices.DeleteFunc(next.authorities, func(p pair) bool { return !now.Before(p.cert.NotAfter) })
	changed = len(next.authorities) != len(m.authorities)
	if known := next.begun(now); len(known) == 0 || known[len(known)-1].left(now) < authorityLead {
		p, err := newAuthority(now)
		if err != nil {
			return m, false, err
		}
		next.authorities, changed = append(next.authorities, p), true
	}
	if !next.serves(now, hosts) {
		p, err := next.issuer(now).issue(now, next.end(now), hosts)
		if err != nil {
			return m, false, err
		}
		next.serving, changed = &p, true
	}
	return next, changed, nil
}

// begun is the authorities without those of a clock that is ahead. Those stay: the replica that has
// this clock may serve with what they signed.
func (m material) begun(now time.Time) []pair {
	return slices.DeleteFunc(slices.Clone(m.authorities), func(p pair) bool { return p.ahead(now) })
}

// end is when a serving certificate ends that is made now. One that replaces that of a clock that
// is ahead ends as that did: else the replica that has this clock would soon renew it, and the two
// replace each other's for as long as their clocks differ.
func (m material) end(now time.Time) time.Time {
	end := now.Add(servingLife)
	if m.serving != nil && m.serving.ahead(now) && m.serving.cert.NotAfter.After(end) {
		return m.serving.cert.NotAfter
	}
	return end
}

// serves says whether the serving certificate will do for some time.
func (m material) serves(now time.Time, hosts []string) bool {
	if m.serving == nil || m.serving.ahead(now) || m.serving.left(now) <= servingLead || !slices.Equal(hostsOf(m.serving.cert), sorted(hosts)) {
		return false
	}
	return slices.ContainsFunc(m.begun(now), func(a pair) bool { return m.serving.cert.CheckSignatureFrom(a.cert) == nil })
}

// follows says whether an authority signed the serving certificate that signed the one before it:
// whoever trusts that one trusts this.
func (m material) follows(before *x509.Certificate) bool {
	return slices.ContainsFunc(m.authorities, func(a pair) bool {
		return m.serving.cert.CheckSignatureFrom(a.cert) == nil && before.CheckSignatureFrom(a.cert) == nil
	})
}

// issuer is the newest authority that everybody has heard of, or the newest if there is none of
// use. One at least has begun.
func (m material) issuer(now time.Time) pair {
	known := m.begun(now)
	for _, a := range slices.Backward(known) {
		if made := a.cert.NotBefore.Add(skew); now.Sub(made) >= settle && a.left(now) > servingLead {
			return a
		}
	}
	return known[len(known)-1]
}

// ahead says whether a clock made it that is ahead of this one by more than skew, so nobody takes
// it yet who has the time of this one.
func (p pair) ahead(now time.Time) bool { return p.cert.NotBefore.After(now) }

func (p pair) left(now time.Time) time.Duration { return p.cert.NotAfter.Sub(now) }

func newAuthority(now time.Time) (pair, error) {
	return sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "syncopate-webhook-ca"}, NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil)
}

// SelfSigned makes a certificate that nobody can verify, for a server of which nobody does: valid
// for a year from an hour before now.
func SelfSigned(now time.Time, hosts ...string) (*tls.Certificate, error) {
	made, err := sign(serving(pkix.Name{CommonName: "syncopate"}, now, now.Add(selfLife), hosts), nil)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{made.cert.Raw}, PrivateKey: made.key, Leaf: made.cert}, nil
}

// serving is what a certificate of a server says.
func serving(name pkix.Name, now, end time.Time, hosts []string) *x509.Certificate {
	c := &x509.Certificate{
		Subject: name, NotBefore: now.Add(-skew), NotAfter: end,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return c
}

// issue makes a serving certificate, which ends with its authority at the latest.
func (p pair) issue(now, end time.Time, hosts []string) (pair, error) {
	if p.cert.NotAfter.Before(end) {
		end = p.cert.NotAfter
	}
	return sign(serving(pkix.Name{CommonName: "syncopate-webhook"}, now, end, hosts), &p)
}

// sign makes a key and a certificate for it; without an issuer it signs itself.
func sign(template *x509.Certificate, issuer *pair) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return pair{}, fmt.Errorf("draw serial number: %w", err)
	}
	if issuer == nil {
		issuer = &pair{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, key.Public(), issuer.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, fmt.Errorf("read certificate just made: %w", err)
	}
	return pair{cert: cert, key: key}, nil
}

// hostsOf is the names and addresses of a certificate, in order.
func hostsOf(c *x509.Certificate) []string {
	hosts := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return sorted(hosts)
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }
