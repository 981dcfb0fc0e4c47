// Package jobs is the stream of jobs: it publishes, fences, recovers, withdraws and lists them.
package jobs
