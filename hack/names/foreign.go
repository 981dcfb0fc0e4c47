// SPDX-License-Identifier: Apache-2.0

package main

// others are names of products and of what other projects declare, which comments and
// pages may name.
var others = setOf(
	"_test.go", "nats.go",
	"CloudEvents", "GiB", "GitOps", "JavaScript", "OpenTelemetry", "PromQL", "W3C", "gRPC",
	"AlreadyExists", "BadRequest", "InternalError", "ServiceUnavailable", "TooManyRequests", "IsServiceUnavailable",
	"CrashLoopBackOff", "CreateContainerConfigError", "ImagePullBackOff", "CronJob",
	"blockOwnerDeletion", "groupName", "holderIdentity", "ownerReference", "renewTime", "restClient", "retryAfterSeconds", "shortName", "subPath",
	"MaxRetries", "PullMaxMessages", "TestingM", "MsgID",
	"TestX", "internal/bus/x_test.go", "internal/y/y_test.go", // examples in docs/bugs.md
)

func setOf(names ...string) set {
	s := set{}
	for _, n := range names {
		s[n] = true
	}
	return s
}
