// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"
)

var (
	krewNames = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	sha256s   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	// archives are the kinds that krew unpacks.
	archives = []string{".tar.gz", ".zip"}
)

// validateKrew says what krew and the rules of its index have against a manifest
// (krew.sigs.k8s.io/docs/developer-guide): all of it, not only the first.
func validateKrew(file string, text []byte) (all []error) {
	var m krewManifest
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		return []error{err}
	}
	complain := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if m.APIVersion != krewVersion {
		complain("apiVersion is %q, not %q", m.APIVersion, krewVersion)
	}
	if m.Kind != "Plugin" {
		complain("kind is %q, not Plugin", m.Kind)
	}
	if !krewNames.MatchString(m.Metadata.Name) || strings.HasPrefix(m.Metadata.Name, "kubectl-") {
		complain("metadata.name %q must be of a-z, 0-9 and -, and not begin with kubectl-", m.Metadata.Name)
	}
	if file != m.Metadata.Name+".yaml" {
		complain("the file %q must be called after metadata.name %q", file, m.Metadata.Name)
	}
	all = append(all, validateKrewSpec(m.Spec)...)
	return all
}

func validateKrewSpec(s krewSpec) (all []error) {
	complain := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if !semver.IsValid(s.Version) || semver.Canonical(s.Version) != s.Version {
		complain("spec.version %q is no semantic version with a v", s.Version)
	}
	if s.ShortDescription == "" || strings.ContainsAny(s.ShortDescription, "\r\n") || len(s.ShortDescription) > 80 {
		complain("spec.shortDescription must be one line of 1 to 80 characters")
	}
	if len(s.Platforms) == 0 {
		complain("spec.platforms is empty")
	}
	for i, p := range s.Platforms {
		for _, err := range validateKrewPlatform(p) {
			complain("spec.platforms[%d]: %w", i, err)
		}
	}
	return append(all, validateKrewChoice(s.Platforms)...)
}

// validateKrewChoice: krew installs the first that matches, so a second one for the same machine is
// never used.
func validateKrewChoice(platforms []krewPlatform) (all []error) {
	for _, p := range pluginPlatforms {
		var matching []int
		for i, k := range platforms {
			if matches(k.Selector, p) {
				matching = append(matching, i)
			}
		}
		if len(matching) > 1 {
			all = append(all, fmt.Errorf("spec.platforms %v all match %s", matching, p))
		}
	}
	return all
}

func validateKrewPlatform(p krewPlatform) (all []error) {
	complain := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	u, err := url.Parse(p.URI)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		complain("uri %q is no https URL", p.URI)
	}
	if !slices.ContainsFunc(archives, func(end string) bool { return strings.HasSuffix(p.URI, end) }) {
		complain("uri %q is none of %v", p.URI, archives)
	}
	if !sha256s.MatchString(p.SHA256) {
		complain("sha256 %q is not 64 digits of 0-9 and a-f", p.SHA256)
	}
	if !inside(p.Bin) {
		complain("bin %q must be a path inside of the archive", p.Bin)
	}
	all = append(all, validateKrewFiles(p.Files)...)
	return append(all, validateKrewSelector(p.Selector)...)
}

func validateKrewFiles(files []krewFile) (all []error) {
	if files != nil && len(files) == 0 {
		all = append(all, errors.New("files is empty: leave it out for all files"))
	}
	for _, f := range files {
		if !inside(f.From) || !inside(f.To) {
			all = append(all, fmt.Errorf("files: from %q to %q must be paths inside of the archive", f.From, f.To))
		}
	}
	return all
}

func validateKrewSelector(s *krewSelector) (all []error) {
	if s == nil {
		return nil // matches everything
	}
	keys := []string{}
	for k := range s.MatchLabels {
		keys = append(keys, k)
	}
	for _, e := range s.MatchExpressions {
		keys = append(keys, e.Key)
		if known := []string{"In", "NotIn", "Exists", "DoesNotExist"}; !slices.Contains(known, e.Operator) {
			all = append(all, fmt.Errorf("selector: operator %q is none of %v", e.Operator, known))
		}
	}
	if len(keys) == 0 {
		all = append(all, fmt.Errorf("selector is empty: leave it out to match every platform"))
	}
	slices.Sort(keys)
	for _, k := range keys {
		if k != "os" && k != "arch" {
			all = append(all, fmt.Errorf("selector: key %q is neither os nor arch", k))
		}
	}
	return all
}

func matches(s *krewSelector, p platform) bool {
	if s == nil {
		return true
	}
	have := map[string]string{"os": p.os, "arch": p.arch}
	for k, v := range s.MatchLabels {
		if have[k] != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		value, there := have[e.Key]
		in := there && slices.Contains(e.Values, value)
		ok := map[string]bool{"In": in, "NotIn": !in, "Exists": there, "DoesNotExist": !there}[e.Operator]
		if !ok {
			return false
		}
	}
	return true
}

// inside is whether a path stays in the directory that it is relative to.
func inside(p string) bool {
	if p == "" || path.IsAbs(p) || strings.Contains(p, `\`) {
		return false
	}
	clean := path.Clean(p)
	return clean != ".." && !strings.HasPrefix(clean, "../")
}
