// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// maxDiffers bounds the paths that Differ returns.
const maxDiffers = 20

// Differ is the paths at which two decoded JSON documents differ. Descriptions are prose for
// people, so they are left out.
func Differ(want, got any) []string {
	var found []string
	differ("", want, got, &found)
	return found
}

func differ(path string, want, got any, found *[]string) {
	if len(*found) >= maxDiffers {
		return
	}
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			differMaps(path, w, g, found)
			return
		}
	case []any:
		if g, ok := got.([]any); ok && len(g) == len(w) {
			for i := range w {
				differ(fmt.Sprintf("%s[%d]", path, i), w[i], g[i], found)
			}
			return
		}
	}
	if !reflect.DeepEqual(want, got) {
		*found = append(*found, path)
	}
}

func differMaps(path string, want, got map[string]any, found *[]string) {
	keys := slices.Sorted(maps.Keys(want))
	for k := range got {
		if _, both := want[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		if prose(k, want[k]) && prose(k, got[k]) {
			continue
		}
		differ(path+"."+k, want[k], got[k], found)
	}
}

// prose says whether a value is a description; a property of that name is a map.
func prose(key string, value any) bool {
	_, text := value.(string)
	return key == "description" && (text || value == nil)
}
