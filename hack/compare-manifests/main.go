// SPDX-License-Identifier: Apache-2.0

// Command compare-manifests says whether two renderings, of kustomize and of Helm, are
// the same objects:
//
//	compare-manifests [-only-first KIND/NAME,...] FIRST.yaml SECOND.yaml
//
// Objects are compared by content, whatever their order and layout. What Helm adds to each object
// does not count: its labels, and the annotation that keeps CRDs. It ends with 1 and lists each
// difference where they are not the same. make verify calls it.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

var (
	errDifferent = errors.New("the two are not the same")
	errUsage     = errors.New("usage: compare-manifests [-only-first KIND/NAME,...] FIRST.yaml SECOND.yaml")
	errTwice     = errors.New("is there twice")
)

func main() {
	onlyFirst := flag.String("only-first", "", "Objects, as Kind/name with commas, that must be in the first file and must not be in the second.")
	flag.Parse()
	if err := compareFiles(os.Stdout, flag.Args(), *onlyFirst); err != nil {
		fmt.Fprintln(os.Stderr, "compare-manifests:", err)
		os.Exit(1)
	}
}

func compareFiles(out io.Writer, paths []string, onlyFirst string) error {
	if len(paths) != 2 {
		return errUsage
	}
	var sets [2]map[string]any
	for i, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read manifests: %w", err)
		}
		if sets[i], err = objects(data); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for name := range strings.SplitSeq(onlyFirst, ",") {
		if name == "" {
			continue
		}
		if err := takeOut(sets[0], sets[1], name); err != nil {
			return err
		}
	}
	if diffs := differences(sets[0], sets[1]); len(diffs) > 0 {
		fmt.Fprintln(out, strings.Join(diffs, "\n"))
		return fmt.Errorf("%w: %d of %d objects", errDifferent, len(diffs), len(sets[0]))
	}
	return nil
}

// takeOut removes an object that only the first is to have.
func takeOut(first, second map[string]any, name string) error {
	found := false
	for key := range first {
		if !strings.HasSuffix(key, " "+name) {
			continue
		}
		found = true
		if _, both := second[key]; both {
			return fmt.Errorf("%w: %s is in both", errDifferent, name)
		}
		delete(first, key)
	}
	if !found {
		return fmt.Errorf("%w: %s is not in the first", errDifferent, name)
	}
	return nil
}

// objects reads a stream of manifests. The keys are "group/version namespace Kind/name".
func objects(data []byte) (map[string]any, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	found := map[string]any{}
	for {
		o := unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("read an object: %w", err)
		}
		if len(o.Object) == 0 {
			continue
		}
		key := o.GetAPIVersion() + " " + o.GetNamespace() + " " + o.GetKind() + "/" + o.GetName()
		if _, twice := found[key]; twice {
			return nil, fmt.Errorf("%s %w", key, errTwice)
		}
		withoutHelm(&o)
		found[key] = o.Object
	}
}

// withoutHelm takes away what Helm's conventions add to the metadata of an object.
func withoutHelm(o *unstructured.Unstructured) {
	o.SetLabels(without(o.GetLabels(), "helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version"))
	o.SetAnnotations(without(o.GetAnnotations(), "helm.sh/resource-policy"))
}

func without(m map[string]string, keys ...string) map[string]string {
	for _, key := range keys {
		delete(m, key)
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

// differences has one text for each object that is not the same in both, in order of their keys.
func differences(first, second map[string]any) []string {
	keys := slices.Collect(maps.Keys(first))
	for key := range second {
		if _, both := first[key]; !both {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var diffs []string
	for _, key := range keys {
		a, inFirst := first[key]
		b, inSecond := second[key]
		switch {
		case !inSecond:
			diffs = append(diffs, key+": only in the first")
		case !inFirst:
			diffs = append(diffs, key+": only in the second")
		default:
			if diff := cmp.Diff(a, b); diff != "" {
				diffs = append(diffs, key+" (-first +second):\n"+diff)
			}
		}
	}
	return diffs
}
