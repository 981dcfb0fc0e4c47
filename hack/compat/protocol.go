// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
)

// protocol compares the messages of the wire protocol. Workers and operators of different
// versions both send and read them, so it matters as much what is allowed less as what is allowed
// more.
func (c *comparison) protocol(was, is string) error {
	for pattern, compare := range map[string]func(at string, was, is any){
		"*.schema.json": c.message, "golden/*.json": c.golden,
	} {
		files, err := filepath.Glob(filepath.Join(was, pattern))
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("no file %s in %s", pattern, was)
		}
		for _, file := range files {
			name, err := filepath.Rel(was, file)
			if err != nil {
				return err
			}
			if err := c.file(filepath.ToSlash(name), file, filepath.Join(is, name), compare); err != nil {
				return err
			}
		}
	}
	slices.Sort(c.changes)
	return nil
}

func (c *comparison) file(name, was, is string, compare func(at string, was, is any)) error {
	before, err := readJSON(was)
	if err != nil {
		return err
	}
	after, err := readJSON(is)
	if errors.Is(err, fs.ErrNotExist) {
		c.add(name, "file removed")
		return nil
	}
	if err == nil {
		compare(name, before, after)
	}
	return err
}

func readJSON(file string) (v any, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return v, nil
}

// golden compares what a message holds. Its layout in the file is not on the wire.
func (c *comparison) golden(at string, was, is any) {
	if !reflect.DeepEqual(was, is) {
		c.add(at, "golden message changed")
	}
}

// prose are keywords of JSON Schema that say nothing about messages.
var prose = []string{"$schema", "$comment", "title", "description"}

// message compares schemas: all keywords must stay as they are, but that properties may be added
// that nobody has to send.
func (c *comparison) message(at string, was, is any) {
	before, ok := was.(map[string]any)
	after, ok2 := is.(map[string]any)
	if !ok || !ok2 {
		if !reflect.DeepEqual(was, is) {
			c.add(at, "changed from %s to %s", plain(was), plain(is))
		}
		return
	}
	for _, key := range keys(before, after) {
		if slices.Contains(prose, key) {
			continue
		}
		old, was := before[key]
		now, is := after[key]
		switch {
		case !is:
			c.add(at+"."+key, "removed")
		case !was:
			c.add(at+"."+key, "added: %s", plain(now))
		case key == "properties":
			c.properties(at, old, now)
		default:
			c.message(at+"."+key, old, now)
		}
	}
}

func (c *comparison) properties(at string, was, is any) {
	before, _ := was.(map[string]any)
	after, _ := is.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, there := after[name]; !there {
			c.add(at+"."+name, "field removed")
			continue
		}
		c.message(at+"."+name, before[name], after[name])
	}
}

func keys(a, b map[string]any) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
