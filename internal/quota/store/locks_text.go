// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// versionDigits is how long a resourceVersion is, filled up with zeros: so they compare as texts.
const versionDigits = 20

// paddedVersion is a resourceVersion as scripts compare it.
func paddedVersion(v string) (string, error) {
	if v == "" || len(v) > versionDigits || strings.Trim(v, "0123456789") != "" {
		return "", fmt.Errorf("%w: resourceVersion %.50q is no number", ErrInvalidRequest, v)
	}
	return strings.Repeat("0", versionDigits-len(v)) + v, nil
}

// order is where a ticket stands among those that wait. When it came is said only where it was
// created before: an operator that does not know that keeps it, and reads what it knows.
func order(t Ticket, version string) string {
	created, came := seconds(t.Created), seconds(t.Arrival())
	text := fmt.Sprintf("%010d.%012d.%s", int64(math.MaxInt32)-int64(t.Priority), created, version)
	if came > created {
		text += fmt.Sprintf("@%012d", came)
	}
	return text
}

// seconds are those of a time, as far as an order has room for them.
func seconds(t time.Time) int64 { return min(max(0, t.Unix()), maxSeconds) }

// parseOrder enters what an order says of a ticket.
func (t *Ticket) parseOrder(text string) error {
	text, came, later := strings.Cut(text, "@")
	at := strings.Split(text, ".")
	if len(at) != 3 {
		return fmt.Errorf("order of a place: %.200q", text)
	}
	priority, err := strconv.ParseInt(at[0], 10, 64)
	if err != nil {
		return fmt.Errorf("priority of a place: %w", err)
	}
	created, err := strconv.ParseInt(at[1], 10, 64)
	if err != nil {
		return fmt.Errorf("creation time of a place: %w", err)
	}
	t.Priority, t.Created = int32(math.MaxInt32-priority), time.Unix(created, 0).UTC()
	if !later {
		return nil
	}
	if created, err = strconv.ParseInt(came, 10, 64); err != nil {
		return fmt.Errorf("time at which a ticket came: %w", err)
	}
	t.Came = time.Unix(created, 0).UTC()
	return nil
}

func (h Holding) text() (string, error) {
	version, err := paddedVersion(h.Ticket.Version)
	if err != nil {
		return "", err
	}
	if err := h.Ticket.check(); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d %s %s", version, h.Fence, h.Ticket.Run, h.Ticket.Tree)
	for _, l := range h.Locks {
		if !word(l.Name) || l.Permits < 1 {
			return "", fmt.Errorf("%w: %d permits of lock %.100q", ErrInvalidRequest, l.Permits, l.Name)
		}
		fmt.Fprintf(&b, " %d %s", l.Permits, l.Name)
	}
	return b.String(), nil
}

func parseHolding(ticket, text string) (Holding, error) {
	parts := strings.Fields(text)
	if len(parts) < 4 || len(parts)%2 != 0 {
		return Holding{}, fmt.Errorf("no hold: %.200q", text)
	}
	fence, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return Holding{}, fmt.Errorf("fence of a hold: %w", err)
	}
	h := Holding{Ticket: Ticket{ID: ticket, Version: unpadded(parts[0]), Run: parts[2], Tree: parts[3]}, Fence: fence}
	for rest := parts[4:]; len(rest) > 0; rest = rest[2:] {
		n, err := strconv.Atoi(rest[0])
		if err != nil {
			return Holding{}, fmt.Errorf("permits of a hold: %w", err)
		}
		h.Locks = append(h.Locks, Hold{Name: rest[1], Permits: n})
	}
	return h, nil
}

func parseWaiter(ticket, text string) (Waiter, error) {
	parts := strings.Fields(text)
	if len(parts) < 4 || len(parts)%4 != 0 {
		return Waiter{}, fmt.Errorf("no place: %.200q", text)
	}
	w := Waiter{Ticket: Ticket{ID: ticket, Run: parts[1], Tree: parts[2]}, order: parts[0], place: text}
	if parts[3] != "-" {
		w.Refused = parts[3]
	}
	if err := w.Ticket.parseOrder(parts[0]); err != nil {
		return Waiter{}, err
	}
	for rest := parts[4:]; len(rest) > 0; rest = rest[4:] {
		want, err := parseWant(rest[0], rest[1], rest[2], rest[3])
		if err != nil {
			return Waiter{}, err
		}
		w.Wants = append(w.Wants, want)
	}
	return w, nil
}

func parseWant(permits, limit, how, name string) (w Want, err error) {
	w.Name, w.Ordered = name, how[0] == '1'
	if w.Permits, err = strconv.Atoi(permits); err != nil {
		return w, fmt.Errorf("permits of a place: %w", err)
	}
	if w.Limit, err = strconv.Atoi(limit); err != nil {
		return w, fmt.Errorf("limit of a place: %w", err)
	}
	return w, nil
}

// how is in which order, and at which rate, a lock is to be had: "0" or "1", and
// ":<starts>/<ms>/<ms>".
func (w Want) how() string {
	text := "0"
	if w.Ordered {
		text = "1"
	}
	if r := w.Rate; r != nil {
		text += fmt.Sprintf(":%d/%d/%d", r.Starts, r.Period.Milliseconds(), r.Since.UnixMilli())
	}
	return text
}

func unpadded(version string) string {
	if v := strings.TrimLeft(version, "0"); v != "" {
		return v
	}
	return "0"
}
