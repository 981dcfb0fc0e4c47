// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// mutation: NewView with the rights of another one (admin's config in user) makes this fail.
func TestAUserSeesNothingOfOtherNamespaces(t *testing.T) {
	t.Parallel()
	mine, theirs := namespace(t), namespace(t)
	newRun(t, mine, "my-run", in(v1alpha1.RunRunning, ""))
	newRun(t, theirs, "their-run", in(v1alpha1.RunRunning, ""))
	c := local(t, user(t, "jane-sees", mine, sees()), mine)
	text := c.get("/runs")
	wants(t, text, "my-run", "You may not list the runs of all namespaces. These are those of "+mine)
	lacks(t, text, "their-run")
	text = c.get("/runs?namespace=" + theirs)
	wants(t, text, "is forbidden", "Choose a namespace")
	lacks(t, text, "their-run")
	for _, path := range []string{"/runs/" + theirs + "/their-run", "/runs/" + theirs + "/their-run/yaml", "/live/runs?namespace=" + theirs} {
		status, text, _ := c.do(http.MethodGet, path, "")
		if status != http.StatusForbidden {
			t.Errorf("%s: %d\n%s", path, status, text)
		}
	}
	wants(t, c.get("/runs/"+mine+"/my-run"), "my-run", "You may not list the events of this namespace")
}

// What a console has listed for a user is shown for as long as the user may list it.
//
// mutation: Rows and Subscribe without MayList make this fail.
func TestARightThatWasTakenBackShowsNothingMore(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	newRun(t, ns, "my-run", in(v1alpha1.RunRunning, ""))
	c := local(t, user(t, "jane-saw", ns, sees()), ns)
	wants(t, c.get("/runs?namespace="+ns), "my-run")
	takeBack(t, "jane-saw", ns)
	text := c.get("/runs?namespace=" + ns)
	wants(t, text, "is forbidden")
	lacks(t, text, "my-run")
	if status, text, _ := c.do(http.MethodGet, "/live/runs?namespace="+ns, ""); status != http.StatusForbidden {
		t.Errorf("%d\n%s", status, text)
	}
}
