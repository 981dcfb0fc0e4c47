// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	sumsFile       = "SHA256SUMS"
	provenanceType = "https://slsa.dev/provenance/v1"
	buildType      = sourceURL + "/blob/main/docs/releasing.md"
)

// writeProvenance says what the artifacts were made from, in a form that tools can sign and check.
// It is not signed here: a key belongs to whoever publishes.
func (r *release) writeProvenance() error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	record, err := buildinfo.ReadFile(r.binaryPath(imagePlatforms[0], imageCommands[0]))
	if err != nil {
		return err
	}
	s, err := r.statement(sums, record.GoVersion)
	if err != nil {
		return err
	}
	if err := s.Validate(); err != nil {
		return err
	}
	text, err := protojson.Marshal(s)
	if err != nil {
		return err
	}
	// protojson puts spaces where it likes, on purpose.
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	return r.write("syncopate-"+r.version+".intoto.json", b.Bytes())
}

// statement has no times and no identity of the call: two calls would differ.
func (r *release) statement(sums []sum, goVersion string) (*intoto.Statement, error) {
	predicate, err := structpb.NewStruct(map[string]any{
		"buildDefinition": map[string]any{
			"buildType":          buildType,
			"externalParameters": map[string]any{"version": r.version, "repository": r.repository},
			"internalParameters": map[string]any{"go": goVersion},
			"resolvedDependencies": []any{map[string]any{
				"uri":    "git+" + sourceURL + "@refs/tags/" + r.version,
				"digest": map[string]any{"gitCommit": r.commit},
			}},
		},
		"runDetails": map[string]any{"builder": map[string]any{"id": buildType}},
	})
	if err != nil {
		return nil, err
	}
	s := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: provenanceType, Predicate: predicate}
	for _, sum := range sums {
		s.Subject = append(s.Subject, &intoto.ResourceDescriptor{Name: sum.file, Digest: map[string]string{"sha256": sum.hex}})
	}
	return s, nil
}

type sum struct{ file, hex string }

// writeSums is what sha256sum -c reads.
func (r *release) writeSums() error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, s := range sums {
		fmt.Fprintf(&b, "%s  %s\n", s.hex, s.file)
	}
	return r.write(sumsFile, []byte(b.String()))
}

func (r *release) sums() ([]sum, error) {
	names, err := r.artifacts()
	if err != nil {
		return nil, err
	}
	var sums []sum
	for _, n := range names {
		data, err := os.ReadFile(filepath.Join(r.dist, n))
		if err != nil {
			return nil, err
		}
		digest := sha256.Sum256(data)
		sums = append(sums, sum{n, hex.EncodeToString(digest[:])})
	}
	return sums, nil
}

// artifacts are the names of what was made so far, in order.
func (r *release) artifacts() ([]string, error) {
	entries, err := os.ReadDir(r.dist)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names, nil
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}

func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.dist, name), data, 0o644) //nolint:gosec // it is for everybody
}
