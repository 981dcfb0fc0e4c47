// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/syncopate-dev/syncopate/config"
)

// shipped calls use with each document of a manifest that this binary has, as JSON.
func shipped(name string, use func(raw []byte) error) error {
	file, err := config.Manifests.ReadFile(name)
	if err != nil {
		return fmt.Errorf("shipped manifest: %w", err)
	}
	const buffer = 4096
	d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(file), buffer)
	for {
		var raw rawJSON
		err := d.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("shipped manifest %s: %w", name, err)
		}
		if err := use(raw); err != nil {
			return fmt.Errorf("shipped manifest %s: %w", name, err)
		}
	}
}

// rawJSON is a document that is decoded later.
type rawJSON []byte

// UnmarshalJSON keeps the document.
func (r *rawJSON) UnmarshalJSON(raw []byte) error {
	*r = bytes.Clone(raw)
	return nil
}
