// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/check"
)

// maxRuns is among how many runs one with a fence is looked for.
const maxRuns = 50

// fence tries, in a dry run, to lower the fence of a run.
func (k *kube) fence(ctx context.Context) check.Fence {
	runs := &v1alpha1.WorkflowRunList{}
	if err := k.List(ctx, runs, client.Limit(maxRuns)); err != nil {
		return check.Fence{Unread: unread("list runs", err)}
	}
	for i := range runs.Items {
		if run := &runs.Items[i]; run.Status != nil && run.Status.Fence != nil && *run.Status.Fence > 0 {
			return k.lower(ctx, run)
		}
	}
	return check.Fence{Unread: check.Unread{Why: "there is no run with a fence to try it on", Hint: "create a run, for example of config/samples, and look again"}}
}

func (k *kube) lower(ctx context.Context, run *v1alpha1.WorkflowRun) check.Fence {
	*run.Status.Fence--
	return saysOf(run.Namespace+"/"+run.Name, k.Status().Update(ctx, run, client.DryRunAll))
}

// saysOf is what an answer says to a write that lowers the fence of a run.
func saysOf(run string, err error) check.Fence {
	f := check.Fence{Run: run}
	switch {
	case err == nil:
		f.Taken = true
	case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "stale writer"):
		f.Said = "by the rule of the CRD"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'syncopate-status'"):
		f.Said = "by the admission policy syncopate-status"
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot update resource "):
		f.Unread = check.Unread{
			Why:  "you may not update the status of runs, so the rules were not asked",
			Hint: "run it as an administrator: it takes update on workflowruns/status, for a dry run",
		}
	default:
		f.Unread = unread("a dry run that lowers the fence of run "+run, err)
		if byAdmission(err) {
			f.Hint = "somebody's policy or webhook does not take the status of runs: leave out workflowruns/status, or the operator's writes fail, too"
		}
	}
	return f
}

// byAdmission says whether a policy or a webhook refused a write, or could not be asked, and not
// the rules of who may do what.
func byAdmission(err error) bool {
	return strings.Contains(err.Error(), "webhook") || strings.Contains(err.Error(), "ValidatingAdmissionPolicy") || apierrors.IsForbidden(err)
}
