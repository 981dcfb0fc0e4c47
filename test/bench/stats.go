// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"time"
)

// percentile is the least of the values that p percent do not exceed. It sorts them.
func percentile[T int | float64 | time.Duration](all []T, p int) T {
	var none T
	if len(all) == 0 {
		return none
	}
	slices.Sort(all)
	return all[(len(all)*p-1)/100]
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// jain is Jain's index of fairness: 1 when all have the same, 1/n when one has everything.
func jain(all []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range all {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(all)) * squares)
}
