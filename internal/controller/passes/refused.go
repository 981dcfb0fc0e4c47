// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Refused says whether an error is somebody's word, and no sign that the API server or a webhook is
// away or has too much to do. A policy has some codes to choose from, a webhook all.
func Refused(err error) bool {
	var is apierrors.APIStatus
	if !errors.As(err, &is) {
		return false
	}
	switch code := is.Status().Code; code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}
