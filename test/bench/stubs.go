package main

import "context"

const childEnv = "BENCH_CHILD"

func childMain(string) int { return 0 }
func scale(context.Context, *stage, *report) error { return nil }
func policyChange(context.Context, *stage, *report) error { return nil }
func contention(context.Context, *stage, *report) error { return nil }
func admissions(context.Context, *stage, *report) error { return nil }
