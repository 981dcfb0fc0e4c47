// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// scrapeEvery is the time between two scrapes, as test/bench -record makes them.
const scrapeEvery = 2 * time.Second

// readScrapes reads what operators exported, from files MILLISECONDS-POD.txt of a folder, with the
// labels that Prometheus adds.
func (b *rulebook) readScrapes(dir string) (s *series, from, to time.Time, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		return nil, from, to, fmt.Errorf("no scrapes in %s: %w", dir, err)
	}
	slices.Sort(files)
	samples, sets := map[string][]chunks.Sample{}, map[string]labels.Labels{}
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, from, to, err
		}
		stamp, pod, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".txt"), "-")
		at, err := strconv.ParseInt(stamp, 10, 64)
		if err != nil {
			return nil, from, to, fmt.Errorf("%s: %w", file, err)
		}
		if i == 0 {
			from = time.UnixMilli(at)
		}
		to = time.UnixMilli(at)
		if err := b.readScrape(string(text), pod, at, samples, sets); err != nil {
			return nil, from, to, fmt.Errorf("%s: %w", file, err)
		}
	}
	s = &series{}
	for key, all := range samples {
		s.all = append(s.all, storage.NewListSeries(sets[key], all))
	}
	return s, from, to, nil
}

func (b *rulebook) readScrape(text, pod string, at int64, samples map[string][]chunks.Sample, sets map[string]labels.Labels) error {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		space := strings.LastIndexByte(line, ' ')
		if line == "" || line[0] == '#' || space < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[space+1:], 64)
		if err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		key := pod + " " + line[:space]
		if _, known := sets[key]; !known {
			own, err := b.parser.ParseMetric(line[:space])
			if err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
			sets[key] = labels.NewBuilder(own).Set("pod", pod).Set("namespace", "syncopate-system").Set("job", "syncopate-metrics").Labels()
		}
		samples[key] = append(samples[key], sample{t: at, v: value})
	}
	return nil
}
