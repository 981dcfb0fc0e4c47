// SPDX-License-Identifier: Apache-2.0

package check

func judgeRights(f Facts) []Finding {
	return OperatorRights.rights(f.Rights, Failed, "apply config/rbac of the operator's release, or, where the chart installed the operator, helm upgrade")
}

func judgeInstallRights(f Facts) []Finding {
	return InstallRights.rights(f.Install, Failed, "install as a user with these rights, as an administrator of the cluster")
}

func (c Code) rights(r Rights, v Verdict, hint string) []Finding {
	switch {
	case r.Why != "":
		return c.unread(r.Unread)
	case len(r.Missing) > 0:
		return []Finding{c.find(v, hint, "%s lacks %d of %d rights: %s", r.Who, len(r.Missing), r.Asked, some(r.Missing))}
	}
	return c.ok("%s has all %d rights", r.Who, r.Asked)
}
