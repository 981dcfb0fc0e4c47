// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

const (
	// ObjectName is the name of the ConfigMap that says who owns which partition.
	ObjectName = "syncopate-ownership"
	// dataKey and sumKey are its entries: a document, and its checksum. A document that was edited
	// by hand is garbage, and is replaced.
	dataKey = "ownership.json"
	sumKey  = "checksum"
	// maxDocument bounds what is decoded, in bytes.
	maxDocument = 64 << 10
	// format is the version of the document.
	format = 1
)

// errGarbage is the cause where the object cannot be read as ownership.
var errGarbage = errors.New("not a document of ownership")

// errNewer is the cause where a newer version of the operator wrote the object, in a format that
// this one does not know. It is left alone.
var errNewer = errors.New("a newer version of the operator wrote the owners of partitions")

// errForeign is the cause where the object is of another cluster. It is an ErrOtherInstallation,
// unless it was copied here.
var errForeign = fmt.Errorf("%w: that of another cluster", ErrOtherInstallation)

// document is the object as JSON: names once, and per partition the index of its owner, or -1, and
// its term.
type document struct {
	Version      int        `json:"version"`
	Installation string     `json:"installation"`
	Prefix       string     `json:"prefix"`
	Origin       string     `json:"origin"`
	Young        bool       `json:"young,omitempty"`
	Owners       []string   `json:"owners"`
	Partitions   [][2]int64 `json:"partitions"`
}

// scope says whose partitions they are.
type scope struct{ installation, prefix string }

// encode is the object with these owners.
func encode(namespace string, s scope, e rules.Effective) (*corev1.ConfigMap, error) {
	d := document{
		Version: format, Installation: s.installation, Prefix: s.prefix, Origin: e.Origin, Young: e.Young,
		Owners: []string{}, Partitions: make([][2]int64, 0, len(e.Claims)),
	}
	for _, c := range e.Claims {
		owner := -1
		if c.Owner != "" {
			if owner = slices.Index(d.Owners, c.Owner); owner < 0 {
				owner = len(d.Owners)
				d.Owners = append(d.Owners, c.Owner)
			}
		}
		d.Partitions = append(d.Partitions, [2]int64{int64(owner), c.Term})
	}
	raw, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode ownership: %w", err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ObjectName},
		Data:       map[string]string{dataKey: string(raw), sumKey: checksum(raw)},
	}, nil
}

func checksum(raw []byte) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE(raw)) }

// decode reads the object. It returns errGarbage where it is none of ours, errNewer where it has a
// later format, ErrOtherInstallation where it is of another scope, and errForeign where that is of
// another cluster.
func decode(object *corev1.ConfigMap, s scope) (rules.Effective, error) {
	d, err := parse(object)
	if err != nil {
		return rules.Effective{}, err
	}
	switch {
	case d.Installation != s.installation:
		return rules.Effective{}, fmt.Errorf("%w: ConfigMap %s/%s is of %q, and this replica of %q", errForeign, object.Namespace, ObjectName, d.Installation, s.installation)
	case d.Prefix != s.prefix:
		return rules.Effective{}, fmt.Errorf("%w: ConfigMap %s/%s is of replicas with --nats-prefix %q, and this one has %q: "+
			"give all replicas of a namespace the same. What is in the streams of the other prefix is not carried over: before you delete the ConfigMap see docs/install.md, Another prefix, or another NATS", ErrOtherInstallation, object.Namespace, ObjectName, d.Prefix, s.prefix)
	}
	return d.effective()
}

func parse(object *corev1.ConfigMap) (document, error) {
	raw := []byte(object.Data[dataKey])
	var d document
	var version struct{ Version int }
	err := json.Unmarshal(raw, &version)
	switch {
	case err == nil && version.Version > format: // whatever else it has, in which form, and how long it is
		return d, fmt.Errorf("%w: format %d, want %d", errNewer, version.Version, format)
	case len(raw) > maxDocument:
		return d, fmt.Errorf("%w: %d bytes, at most %d", errGarbage, len(raw), maxDocument)
	case object.Data[sumKey] != checksum(raw):
		return d, fmt.Errorf("%w: the checksum is another", errGarbage)
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, fmt.Errorf("%w: %w", errGarbage, err)
	}
	if d.Version != format {
		return d, fmt.Errorf("%w: format %d, want %d", errGarbage, d.Version, format)
	}
	return d, nil
}

func (d document) effective() (rules.Effective, error) {
	e := rules.Effective{Origin: d.Origin, Young: d.Young}
	for p, c := range d.Partitions {
		owner := ""
		if c[0] >= int64(len(d.Owners)) || c[0] < -1 || c[1] < 1 {
			return rules.Effective{}, fmt.Errorf("%w: partition %d is %v, with %d owners", errGarbage, p, c, len(d.Owners))
		}
		if c[0] >= 0 {
			owner = d.Owners[c[0]]
		}
		e.Claims = append(e.Claims, rules.Claim{Owner: owner, Term: c[1]})
	}
	if len(e.Claims) != Partitions {
		return rules.Effective{}, fmt.Errorf("%w: %d partitions, want %d", errGarbage, len(e.Claims), Partitions)
	}
	return e, nil
}

// Claim says who owns a partition, and since which term. An empty owner is none.
type Claim = rules.Claim

// Decode reads the owners and terms from the ConfigMap, for those who show them: an entry per
// partition.
func Decode(object *corev1.ConfigMap) ([]Claim, error) {
	d, err := parse(object)
	if err != nil {
		return nil, err
	}
	e, err := d.effective()
	return e.Claims, err
}
