// SPDX-License-Identifier: Apache-2.0

package check

const rollout = "kubectl rollout status and kubectl describe of the Deployment say what it waits for; /readyz?verbose of a pod says what is not reached"

func judgeOperator(f Facts) []Finding {
	o := f.Operator
	if o.Why != "" {
		return unreadAll(o.Unread, OperatorReady, OperatorVersions)
	}
	if o.Missing {
		return append([]Finding{OperatorReady.find(Failed, "install it (docs/install.md), or say where it is with --operator-namespace", "there is no Deployment of the operator")},
			OperatorVersions.unread(Unread{Why: "there is no Deployment of the operator"})...)
	}
	return append(o.ready(), o.versions()...)
}

func (o Operator) ready() []Finding {
	switch {
	case o.Wanted == 0:
		return []Finding{OperatorReady.find(Failed, "scale the Deployment", "the operator has no replicas: no run goes on")}
	case o.Ready == 0:
		return []Finding{OperatorReady.find(Failed, rollout, "none of %d replicas is ready: no run goes on", o.Wanted)}
	case o.Ready < o.Wanted:
		return []Finding{OperatorReady.find(Warning, rollout, "%d of %d replicas are ready", o.Ready, o.Wanted)}
	case o.Wanted == 1:
		return []Finding{OperatorReady.find(Warning, "two replicas take over from each other within seconds", "the operator has one replica")}
	}
	return OperatorReady.ok("%d replicas are ready", o.Ready)
}

func (o Operator) versions() []Finding {
	switch {
	case o.PodsUnread.Why != "":
		return OperatorVersions.unread(o.PodsUnread)
	case len(o.Images) > 1 && o.Rolling:
		return []Finding{OperatorVersions.find(Warning, "wait for the rollout", "replicas are of %d versions while the Deployment is rolled out: %s", len(o.Images), some(o.Images))}
	case len(o.Images) > 1:
		return []Finding{OperatorVersions.find(Failed, "kubectl rollout restart of the Deployment", "replicas are of %d versions: %s", len(o.Images), some(o.Images))}
	case len(o.Images) == 0:
		return OperatorVersions.unread(Unread{Why: "the operator has no pods"})
	}
	return OperatorVersions.ok("all replicas are of %s", o.Images[0])
}
