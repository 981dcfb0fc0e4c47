// SPDX-License-Identifier: Apache-2.0

// Package pages turns the models of internal/console/views into HTML. It embeds its templates, one
// style sheet, and one script.
//
// # Guarantees
//
//   - Everything that comes from a cluster is escaped, by html/template. No template has a script,
//     a handler or a style of its own, so a strict Content-Security-Policy holds.
//   - The script is below 15 KiB, and no page needs it: each works by links, forms and reloading.
//   - A page refers to its own server only.
package pages
