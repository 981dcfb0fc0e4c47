// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// watches is how a controller asks for events of a kind.
var watches = regexp.MustCompile(`(?:source\.Kind\(mgr\.GetCache\(\), client\.Object\(|\bFor\(|Watches(?:Metadata)?\()(?:&v1alpha1\.(\w+)\{\}|(Workflow)Kind\(\))`)

// mutation: a kind that is taken out of warmKinds makes this fail.
func TestCachesOfAllKindsThatControllersWatchAreWarm(t *testing.T) {
	warm := map[string]bool{}
	for _, kind := range warmKinds() {
		name := reflect.TypeOf(kind).Elem().Name()
		if partial, ok := kind.(*metav1.PartialObjectMetadata); ok {
			name = partial.Kind
		}
		warm[name] = true
	}
	found := 0
	err := filepath.WalkDir(filepath.Join("..", "..", "internal", "controller"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range watches.FindAllStringSubmatch(string(text), -1) {
			found++
			if kind := match[1] + match[2]; !warm[kind] {
				t.Errorf("%s watches %ss, and no cache of them is warm", path, kind)
			}
		}
		return nil
	})
	if err != nil || found < 10 {
		t.Errorf("%d watches were found, %v", found, err)
	}
}
