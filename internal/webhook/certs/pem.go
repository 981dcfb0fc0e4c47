// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Entries of the Secret. Those of the authorities hold all of them, oldest first.
const (
	entryAuthorities   = "ca.crt"
	entryAuthorityKeys = "ca.key"
	entryServing       = corev1.TLSCertKey
	entryServingKey    = corev1.TLSPrivateKeyKey

	blockCert = "CERTIFICATE"
	blockKey  = "PRIVATE KEY"

	// maxAuthorities bounds what is read from a Secret; there are two at the most, for a year,
	// and one more of each clock that is wrong.
	maxAuthorities = 8
)

// errUnusable says that a Secret does not hold what this package wrote.
var errUnusable = errors.New("unusable certificates")

// data is the material as a Secret holds it.
func (m material) data() (map[string][]byte, error) {
	keys := &bytes.Buffer{}
	for _, a := range m.authorities {
		if err := a.writeKey(keys); err != nil {
			return nil, err
		}
	}
	serving, servingKey := &bytes.Buffer{}, &bytes.Buffer{}
	m.serving.writeCert(serving)
	if err := m.serving.writeKey(servingKey); err != nil {
		return nil, err
	}
	return map[string][]byte{
		entryAuthorities: m.bundle(), entryAuthorityKeys: keys.Bytes(), entryServing: serving.Bytes(), entryServingKey: servingKey.Bytes(),
	}, nil
}

// bundle is the authorities, for a caBundle.
func (m material) bundle() []byte {
	b := &bytes.Buffer{}
	for _, a := range m.authorities {
		a.writeCert(b)
	}
	return b.Bytes()
}

// certificate is what a server serves with.
func (m material) certificate() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{m.serving.cert.Raw}, PrivateKey: m.serving.key, Leaf: m.serving.cert}
}

func (p pair) writeCert(to *bytes.Buffer) {
	to.Write(pem.EncodeToMemory(&pem.Block{Type: blockCert, Bytes: p.cert.Raw}))
}

func (p pair) writeKey(to *bytes.Buffer) error {
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	to.Write(pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: der}))
	return nil
}

// parse reads what a Secret holds. It holds everything or it is unusable: who has no key of an
// authority cannot sign with it.
func parse(data map[string][]byte) (material, error) {
	authorities, err := parsePairs(data[entryAuthorities], data[entryAuthorityKeys])
	if err != nil {
		return material{}, fmt.Errorf("%w: %s and %s: %w", errUnusable, entryAuthorities, entryAuthorityKeys, err)
	}
	serving, err := parsePairs(data[entryServing], data[entryServingKey])
	if err != nil {
		return material{}, fmt.Errorf("%w: %s and %s: %w", errUnusable, entryServing, entryServingKey, err)
	}
	return material{authorities: authorities, serving: &serving[0]}, nil
}

// parsePairs reads certificates and, in the same order, their keys; one at least.
func parsePairs(certs, keys []byte) ([]pair, error) {
	certBlocks, keyBlocks := blocks(certs, blockCert), blocks(keys, blockKey)
	if n := len(certBlocks); n == 0 || n > maxAuthorities || n != len(keyBlocks) {
		return nil, fmt.Errorf("%d certificates and %d keys", n, len(keyBlocks))
	}
	pairs := make([]pair, len(certBlocks))
	for i := range certBlocks {
		cert, err := x509.ParseCertificate(certBlocks[i])
		if err != nil {
			return nil, fmt.Errorf("read certificate: %w", err)
		}
		key, err := x509.ParsePKCS8PrivateKey(keyBlocks[i])
		if err != nil {
			return nil, fmt.Errorf("read key: %w", err)
		}
		private, ok := key.(*ecdsa.PrivateKey)
		if !ok || !private.PublicKey.Equal(cert.PublicKey) {
			return nil, errors.New("a key is not that of its certificate")
		}
		pairs[i] = pair{cert: cert, key: private}
	}
	return pairs, nil
}

// blocks is the contents of the PEM blocks of a kind. Anything else is passed over.
func blocks(text []byte, kind string) [][]byte {
	var found [][]byte
	for block, rest := pem.Decode(text); block != nil && len(found) <= maxAuthorities; block, rest = pem.Decode(rest) {
		if block.Type == kind {
			found = append(found, block.Bytes)
		}
	}
	return found
}
