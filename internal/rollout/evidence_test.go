// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// exactEvidence is E(k, n) by the formula of the package documentation, in integers.
func exactEvidence(k, n int64) float64 {
	sum := new(big.Int)
	for j := range k + 1 {
		sum.Add(sum, new(big.Int).Binomial(n+1, j))
	}
	below := new(big.Int).Mul(big.NewInt(n+1), new(big.Int).Binomial(n, k))
	ratio, _ := new(big.Rat).SetFrac(sum, below).Float64()
	return ratio
}

func TestEvidenceIsThatOfTheFormula(t *testing.T) {
	for n := range int64(61) {
		for k := range n + 1 {
			want, got := math.Log(exactEvidence(k, n)), logEvidence(k, n)
			if math.Abs(want-got) > 1e-9 {
				t.Errorf("log E(%d, %d) is %g; want %g", k, n, got, want)
			}
		}
	}
	for _, c := range [][2]int64{{5000, 10000}, {500_000, 1_000_000}, {1_000_000, 1_000_000}, {0, 1_000_000}, {400, 1000}} {
		if got := logEvidence(c[0], c[1]); math.IsNaN(got) || math.IsInf(got, 0) {
			t.Errorf("log E(%d, %d) is %g", c[0], c[1], got)
		}
	}
}

// Without a difference the next vote is the canary's with probability 1/2, and the mean of E stays
// what it is.
//
// mutation: a prior that is not normalised makes this fail.
func TestEvidenceIsAMartingale(t *testing.T) {
	if logEvidence(0, 0) != 0 {
		t.Error("evidence does not begin at 1")
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 3000).Draw(t, "n")
		k := rapid.Int64Range(0, n).Draw(t, "k")
		now, next := logEvidence(k, n), logMean(logEvidence(k, n+1), logEvidence(k+1, n+1))
		if math.Abs(now-next) > 1e-7 {
			t.Fatalf("log E(%d, %d) is %g, the mean of the next is %g", k, n, now, next)
		}
	})
}

// The evidence of both kinds of runs is one, too: whatever kind the next run is, and whichever arm
// it is in.
func TestEvidenceOfBothKindsIsAMartingale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) Vote {
			asked := rapid.Int64Range(0, 500).Draw(t, name)
			return Vote{Yes: rapid.Int64Range(0, asked).Draw(t, name+" yes"), Asked: asked}
		}
		canary, control := draw("canary"), draw("control")
		for _, yes := range []int64{0, 1} {
			more := func(v Vote) Vote { return Vote{v.Yes + yes, v.Asked + 1} }
			now, next := logWorse(canary, control), logMean(logWorse(more(canary), control), logWorse(canary, more(control)))
			if math.Abs(now-next) > 1e-7 {
				t.Fatalf("evidence %g becomes %g in the mean", now, next)
			}
		}
	})
}

// A share's evidence begins at 1, and has that mean under its own share.
func TestEvidenceOfAShareIsAMartingale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 3000).Draw(t, "n")
		k := rapid.Int64Range(0, n).Draw(t, "k")
		p := float64(rapid.IntRange(1, 99).Draw(t, "percent")) / 100
		up, down := math.Exp(logShare(k+1, n+1, p)-logShare(k, n, p)), math.Exp(logShare(k, n+1, p)-logShare(k, n, p))
		if mean := p*up + (1-p)*down; math.Abs(mean-1) > 1e-6 {
			t.Fatalf("k %d, n %d, p %g: the mean changes by a factor of %g", k, n, p, mean)
		}
	})
}

// A kind of hard events that both arms have alike takes hardly a candidate back, however often it
// is looked at.
//
// mutation: hardGuardrails that compares the numbers, or has a limit of log(20), makes this fail.
func TestHardEventsOfBothArmsAreNoFalseAlarm(t *testing.T) {
	rnd := rand.New(rand.NewPCG(simulationSeed, 1))
	alarms := 0
	for range 1000 {
		s := State{Seen: Tally{Control: Counts{Abandoned: 1}}} // a first one of the canary takes it back
		for range 300 {
			if rnd.IntN(2) == 0 {
				s.Seen.Canary.Abandoned++
			} else {
				s.Seen.Control.Abandoned++
			}
			if _, found := hardGuardrails(Plan{}, s); found {
				alarms++
				break
			}
		}
	}
	if alarms > 2 {
		t.Errorf("%d of 1000 candidates without a difference are taken back; 1 of 6000 is borne", alarms)
	}
}

func TestArms(t *testing.T) {
	count := map[Arm]int{}
	moved := 0
	const runs = 20000
	for i := range runs {
		uid := string(rune('a'+i%26)) + big.NewInt(int64(i)).String()
		at5, at50 := ArmOf(uid, "4f2a-2", 5), ArmOf(uid, "4f2a-2", 50)
		count[at5]++
		if at5 != Rest && at5 != at50 {
			moved++
		}
		if at50 == Rest {
			t.Fatal("at 50 percent each run is in an arm")
		}
	}
	if moved > 0 {
		t.Errorf("%d runs changed sides as the percentage grew", moved)
	}
	for _, arm := range []Arm{Canary, Control} {
		if n := count[arm]; n < runs/20-150 || n > runs/20+150 {
			t.Errorf("%s has %d of %d runs at 5 percent", arm, n, runs)
		}
	}
	same := 0
	for i := range runs {
		uid := big.NewInt(int64(i)).String()
		if ArmOf(uid, "4f2a-2", 5) == Canary && ArmOf(uid, "4f2a-3", 5) == Canary {
			same++
		}
	}
	if same > runs/100 {
		t.Errorf("%d runs are the canary of two candidates; want about %d", same, runs/400)
	}
}
