// SPDX-License-Identifier: Apache-2.0

// Package cron computes the times at which a schedule is due.
//
// For example, "30 2 * * *" in Europe/Berlin is due at 02:30 of each day. On 29 March 2026 clocks
// go from 02:00 to 03:00, so that day has no 02:30: the slot is at 03:00 (gap RunAfter), or there
// is none (gap Skip). On 25 October 2026 the time 02:30 comes twice: the slot is the first
// (repeat First), or there are two (repeat Both).
//
// # Dialect
//
// That of CronJobs in Kubernetes: five fields (minute, hour, day of month, month, day of week), or
// one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually.
//
//	field         values            names
//	minute        0-59
//	hour          0-23
//	day of month  1-31
//	month         1-12              jan-dec
//	day of week   0-6, 0 is Sunday  sun-sat
//
// A field is a list, separated by commas, of *, ?, N, N-M and each of them with /STEP; N/STEP is
// from N to the end. If both day fields are restricted, a day matches if one of them does; * and ?
// restrict nothing, and neither does */1. Parse refuses @every, which is no wall time, a zone
// inside the text, and a text that never comes, as "0 0 30 2 *".
//
// # From wall times to instants
//
//	text --Parse--> Expr --next wall time--> Timetable --zone, rules--> instant
//
// A zone is a row of periods with one offset from UTC each. In a period wall time and time advance
// together. Where the next period has a larger offset there is a gap of wall times. Where it has a
// smaller one some wall times come again.
//
//   - Gap RunAfter: all slots in a gap are one, at the first instant after it. Skip: there is none.
//   - Repeat First: a wall time that came before has no slot. Both: each has one.
//   - By default a text that names hours has RunAfter and First, so a daily job runs once a day. A
//     text whose hour field is every hour has Skip and Both, so a job of each quarter of an hour
//     keeps its pace.
//
// These rules hold for half an hour (Lord Howe), for shifts at midnight (Beirut), and for a day
// that was left out (Samoa, 30 December 2011). Instants are whole minutes. Offsets with seconds,
// which zones had before 1972, count as the minute below.
//
// # Guarantees
//
//   - Next is a pure function: it reads no clock. Zones are those of the system or, where it has
//     none, those built into the binary.
//   - Next looks nine years ahead at the most, which covers 29 February over 1900 and 2100.
//     Its cost does not depend on how far away the slot is.
//   - A Timetable does not change, and is safe for concurrent use.
package cron
