package lifecycle

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func secondTime(t time.Time) metav1.Time {
	return metav1.Time{Time: t.UTC().Truncate(time.Second)}
}

func secondPointer(t time.Time) *metav1.Time {
	s := secondTime(t)
	return &s
}

func microPointer(t time.Time) *metav1.MicroTime {
	return &metav1.MicroTime{Time: t.UTC().Truncate(time.Microsecond)}
}

// due says whether the moment came; an absent one did.
func due(now time.Time, t *metav1.MicroTime) bool {
	return t == nil || !now.Before(t.Time)
}

func timeText(t *metav1.MicroTime) string {
	if t == nil {
		return "?"
	}
	return t.UTC().Format(time.RFC3339)
}
