package lifecycle

import "testing"

// skipUnderRace leaves a long test to the run without the race detector, which make test has, too:
// the core starts no goroutine.
func skipUnderRace(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("takes ten times as long with the race detector, which has nothing to find here")
	}
}
