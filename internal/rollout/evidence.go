// SPDX-License-Identifier: Apache-2.0

package rollout

import "math"

// logEvidence is log E(k, n): how much more likely it is that k of n votes are the canary's if its
// share is above one half than if it is one half. See the package documentation.
func logEvidence(k, n int64) float64 {
	if n == 0 {
		return 0
	}
	return logTail(k, n+1) - math.Log(float64(n+1)) - logChoose(n, k)
}

// logTail is the logarithm of the sum over j = 0..k of C(m, j).
//
// From the largest term on, terms shrink at least as fast as a geometric series, so few are needed.
func logTail(k, m int64) float64 {
	top := min(k, m/2) // the largest term of those up to k
	first := logChoose(m, top)
	sum, term := 1.0, 1.0
	for j := top; j > 0 && term > sum*epsilon; j-- {
		term *= float64(j) / float64(m-j+1)
		sum += term
	}
	term = 1
	for j := top; j < k && term > sum*epsilon; j++ {
		term *= float64(m-j) / float64(j+1)
		sum += term
	}
	return first + math.Log(sum)
}

// epsilon is what a term must add to a sum to matter.
const epsilon = 1e-15

func logChoose(n, k int64) float64 {
	return logFactorial(n) - logFactorial(k) - logFactorial(n-k)
}

func logFactorial(n int64) float64 {
	l, _ := math.Lgamma(float64(n) + 1)
	return l
}

// logWorse is the logarithm of the evidence that runs of the canary vote yes more often: yes of
// those asked, by arm.
func logWorse(canary, control Vote) float64 {
	yes := logEvidence(canary.Yes, canary.Yes+control.Yes)
	no := logEvidence(control.Asked-control.Yes, canary.Asked-canary.Yes+control.Asked-control.Yes)
	return yes + logMean(0, no)
}

// logMean is the logarithm of the mean of two numbers with these logarithms.
func logMean(a, b float64) float64 {
	most := max(a, b)
	return most + math.Log((math.Exp(a-most)+math.Exp(b-most))/2)
}

// logShare is the logarithm of the evidence that the share of k in n is not p: the mixture is
// uniform in (0, 1).
func logShare(k, n int64, p float64) float64 {
	if n == 0 {
		return 0
	}
	return -math.Log(float64(n+1)) - logChoose(n, k) - float64(k)*math.Log(p) - float64(n-k)*math.Log1p(-p)
}
