package lifecycle

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func timeText(t *metav1.MicroTime) string {
	if t == nil {
		return "?"
	}
	return t.UTC().Format(time.RFC3339)
}
