// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// hashLength is how many hex digits name the content of a revision.
const hashLength = 8

// wanted is what spec asks for next.
type wanted struct {
	policy.Content

	revision rollout.Revision
	unit     rollout.Unit
	baseline rollout.Revision
	spec     *v1alpha1.RolloutAdmission // as spec has slots asked for; nil: that is not rolled out
	more     bool                       // spec asks for more after it
}

// wantedOf is what spec asks for next, given what is in the next status. Its revision is that of
// the baseline or of the candidate, if it means the same.
func wantedOf(p *v1alpha1.LockPolicy, next *v1alpha1.LockPolicyStatus) wanted {
	now := *p
	now.Status = next
	w := wanted{spec: policy.AdmissionOf(p)}
	w.Content, w.unit, w.more = policy.Wanted(&now)
	st := next.Rollout
	if st == nil {
		w.revision = rollout.Revision{Hash: hashOf(p, w.Content), Generation: p.Generation}
		return w
	}
	w.baseline = revisionOf(&st.Baseline)
	switch {
	case w.Is(policy.ContentOf(&st.Baseline)):
		w.revision = w.baseline
	case st.Candidate != nil && w.Is(policy.ContentOf(st.Candidate)):
		w.revision = revisionOf(st.Candidate)
	default:
		w.revision = rollout.Revision{Hash: hashOf(p, w.Content), Generation: p.Generation}
		if w.revision.Is(w.baseline) || w.revision.Is(revisionOf(st.Candidate)) {
			w.revision.Hash += "x" // that of other content
		}
	}
	return w
}

// differs says that it is not what is in force.
func (w wanted) differs() bool { return !w.revision.Is(w.baseline) }

// stored is a revision with its content: of the baseline, of the candidate, or of what is wanted.
func (w wanted) stored(rev rollout.Revision, st *v1alpha1.LockPolicyRolloutStatus) *v1alpha1.RolloutRevision {
	if rev.Zero() {
		return nil
	}
	out := &v1alpha1.RolloutRevision{Name: rev.Name(), Generation: rev.Generation, RunLock: w.RunLock, Admission: w.Admission}
	switch {
	case st == nil:
	case revisionOf(&st.Baseline) == rev:
		out = st.Baseline.DeepCopy()
	case st.Candidate != nil && revisionOf(st.Candidate) == rev:
		out = st.Candidate.DeepCopy()
	}
	if w.spec == nil || out.Admission == nil { // not rolled out; or not until now, so as spec says
		out.Admission = w.spec
	}
	return out
}

// hashOf is that of what a policy asks for. Another policy has other hashes, also one of the same
// name that was deleted: what was counted for its candidates does not count.
func hashOf(p *v1alpha1.LockPolicy, c policy.Content) string {
	raw, _ := json.Marshal(c) //nolint:errchkjson // numbers and strings only
	sum := sha256.Sum256(append([]byte(p.UID+"/"), raw...))
	return hex.EncodeToString(sum[:])[:hashLength]
}
