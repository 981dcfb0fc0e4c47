// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"slices"
)

// Judge says what the facts mean.
func Judge(f Facts) []Finding {
	var all []Finding
	for _, judge := range judges(f.Pre) {
		all = append(all, judge(f)...)
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return cmp.Compare(a.Code, b.Code) })
	return all
}

func judges(pre bool) []func(Facts) []Finding {
	always := []func(Facts) []Finding{judgeVersion, judgeNATSServer, judgeUser, judgeRedis, judgeClocks}
	if pre {
		return append(always, judgeInstallRights)
	}
	return append(always, judgeCRDs, judgeAdmission, judgeFence, judgeOperator, judgeRights, judgeWebhook, judgePartitions, judgeElsewhere, judgePolicies,
		judgeStreams, judgeConsumers, judgeRisks, judgeManifests)
}
