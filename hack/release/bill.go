// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/buildinfo"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeBills lists what the binaries are made of, from the record that Go puts into each. All
// binaries of the image are one bill; the plugin has its own.
func (r *release) writeBills() error {
	if err := r.writeBill("syncopate", imagePlatforms, imageCommands); err != nil {
		return err
	}
	return r.writeBill(plugin, pluginPlatforms, []string{plugin})
}

func (r *release) writeBill(name string, platforms []platform, commands []string) error {
	var records []*debug.BuildInfo
	for _, p := range platforms {
		for _, c := range commands {
			record, err := buildinfo.ReadFile(r.binaryPath(p, c))
			if err != nil {
				return err
			}
			records = append(records, record)
		}
	}
	var b bytes.Buffer
	enc := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON)
	if err := enc.SetPretty(true).Encode(bill(name, r.version, r.time, records)); err != nil {
		return err
	}
	return r.write(name+"-"+r.version+".cdx.json", b.Bytes())
}

// bill has no serial number: that would be another one at each call.
func bill(name, version string, at time.Time, records []*debug.BuildInfo) *cdx.BOM {
	byRef := map[string]cdx.Component{}
	for _, record := range records {
		std := goModule(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(record.GoVersion, "go"))
		byRef[std.BOMRef] = std
		for _, m := range record.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			c := goModule(cdx.ComponentTypeLibrary, m.Path, m.Version)
			c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
			byRef[c.BOMRef] = c
		}
	}
	components := make([]cdx.Component, 0, len(byRef))
	refs := make([]string, 0, len(byRef))
	for ref, c := range byRef {
		components, refs = append(components, c), append(refs, ref)
	}
	slices.SortFunc(components, func(a, b cdx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	slices.Sort(refs)
	main := goModule(cdx.ComponentTypeApplication, "github.com/syncopate-dev/syncopate", version)
	main.Name = name
	main.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: at.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	// The record does not say which module needs which: all are below the main one.
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return bom
}

func goModule(kind cdx.ComponentType, path, version string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cdx.Component{Type: kind, BOMRef: url, Name: path, Version: version, PackageURL: url}
}
