// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// The alerts about restarts count the changes of this series.
//
// mutation: another name, or a value that is the same after a restart, makes this fail.
func TestTheMetricsSayWhenTheProcessBegan(t *testing.T) {
	for at, want := range map[time.Time]string{
		time.Unix(1_700_000_000, 0):           "1.7e+09",
		time.Unix(1_700_000_000, 250_000_000): "1.70000000025e+09",
	} {
		reg := prometheus.NewRegistry()
		newProcessMetrics(reg, at)
		text := "# HELP syncopate_start_timestamp_seconds When this process of the operator began, as Unix time.\n" +
			"# TYPE syncopate_start_timestamp_seconds gauge\nsyncopate_start_timestamp_seconds " + want + "\n"
		if err := testutil.GatherAndCompare(reg, strings.NewReader(text), "syncopate_start_timestamp_seconds"); err != nil {
			t.Error(err)
		}
	}
}
