// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// tooLarge says that the API server, or etcd behind it, has no room for an object. etcd's answer
// comes as an internal error.
func tooLarge(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	text := answer.Status().Message
	return answer.Status().Code == http.StatusRequestEntityTooLarge || strings.Contains(text, "etcdserver: request is too large") ||
		(strings.Contains(text, "code = ResourceExhausted") && strings.Contains(text, "larger than max"))
}

// outage says that an error of the API server is no word on what was to be written: nobody
// answered, or not now.
func outage(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true
	}
	if tooLarge(err) {
		return false
	}
	switch code := answer.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	default:
		return code < http.StatusBadRequest || code >= http.StatusInternalServerError
	}
}

// isStaleWriter says whether the API server's fence rules refused a write.
func isStaleWriter(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "stale writer")
}
