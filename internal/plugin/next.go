// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/check/probe"
	"github.com/syncopate-dev/syncopate/internal/cron"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// maxNext bounds how many slots are shown.
const maxNext = 1000

// nextSlot is a slot as it is shown.
type nextSlot struct {
	// Time is the slot, and Due when its run is created.
	Time string `json:"time"`
	Due  string `json:"due"`
	Run  string `json:"run"`
}

func nextCommand(a *app) *cobra.Command {
	var (
		format, file string
		count        int
	)
	cmd := &cobra.Command{
		Use:   "next SCHEDULE | next -f FILE",
		Short: "Show the next slots of a schedule",
		Long: `Show the next slots of a schedule, with their offset from UTC, when their runs are created, and the names of these.

With -f the schedule is read from a file, and no cluster is asked.`,
		Args: args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := output(format, formatTable, formatJSON); err != nil {
				return err
			}
			if count < 1 || count > maxNext {
				return usagef("--count %d: need 1 to %d", count, maxNext)
			}
			if (file == "") == (len(names) == 0) {
				return usagef("need the name of a schedule, or -f FILE")
			}
			s, err := scheduleOf(cmd.Context(), a, file, names)
			if err != nil {
				return err
			}
			slots, err := nextSlots(s, a.Clock.Now(), count)
			if err != nil {
				return err
			}
			if why := cmp.Or(schedule.StartsNone(s), heldBy(s)); why != "" {
				a.note("No run is started now: %s.", why)
			}
			if format == formatJSON {
				return a.writeJSON(slots)
			}
			return nextTable(a, s, slots)
		},
	}
	cmd.Flags().IntVar(&count, "count", 5, "How many slots to show.")
	cmd.Flags().StringVarP(&file, "filename", "f", "", "A file with a schedule, in YAML or JSON.")
	bindOutput(cmd, &format, formatTable)
	return cmd
}

// scheduleOf is the schedule of a file, or the one of the cluster with that name.
func scheduleOf(ctx context.Context, a *app, file string, names []string) (*v1alpha1.Schedule, error) {
	s := &v1alpha1.Schedule{}
	if file == "" {
		c, namespace, err := a.Cluster()
		if err != nil {
			return nil, err
		}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: names[0]}, s); err != nil {
			return nil, fmt.Errorf("read schedule %s: %w", names[0], err)
		}
		return s, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the schedule: %w", err)
	}
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err == nil && kind.GroupVersionKind() != v1alpha1.GroupVersion.WithKind("Schedule") {
		return nil, fmt.Errorf("%s has kind %q of %q, need a Schedule of %s", file, kind.Kind, kind.APIVersion, v1alpha1.GroupVersion)
	}
	if err := probe.Decode(text, s); err != nil {
		return nil, fmt.Errorf("read schedule of %s: %w", file, err)
	}
	return s, nil
}

// nextSlots are the slots whose run is to be created after now, as the operator would have them.
// The first may have come already, where jitter has it wait, if the operator is to start it: it
// says how far it is, and starts none while the schedule is held.
func nextSlots(s *v1alpha1.Schedule, now time.Time, count int) ([]nextSlot, error) {
	timing := &s.Spec.ScheduleTiming
	table, err := cron.New(timing.Cron, timing.TimeZone, cron.Rules{Gap: cron.Gap(timing.DST.Gap), Repeat: cron.Repeat(timing.DST.Repeat)})
	if err != nil {
		return nil, fmt.Errorf("schedule %s: %w", s.Name, err)
	}
	slots, jitter := []nextSlot{}, time.Duration(timing.JitterSeconds)*time.Second
	at := now
	if s.Status != nil && s.Status.DecidedUntil != nil && heldBy(s) == "" {
		at = now.Add(-jitter - time.Minute)
		if until := s.Status.DecidedUntil.Time; until.After(at) {
			at = until
		}
	}
	for len(slots) < count {
		slot, ok := table.Next(at)
		if !ok {
			break
		}
		if due := schedule.Due(table, s.Name, slot, jitter); due.After(now) {
			slots = append(slots, nextSlot{Time: slot.Format(time.RFC3339), Due: due.Format(time.RFC3339), Run: schedule.RunName(s.Name, slot)})
		}
		at = slot
	}
	return slots, nil
}

// heldBy is why no slot is decided; "": some are. A file has no status.
func heldBy(s *v1alpha1.Schedule) v1alpha1.SlotReason {
	switch {
	case s.Status != nil && s.Status.Held != "":
		return s.Status.Held
	case s.Spec.Suspend:
		return v1alpha1.SlotSuspended
	}
	return ""
}

func nextTable(a *app, s *v1alpha1.Schedule, slots []nextSlot) error {
	if len(slots) == 0 {
		a.note("There is no slot within nine years.")
		return nil
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "SLOT (%s)\tRUN CREATED\tRUN\n", cmp.Or(s.Spec.TimeZone, "UTC"))
	for _, slot := range slots {
		fmt.Fprintf(w, "%s\t%s\t%s\n", slot.Time, slot.Due, slot.Run)
	}
	return w.Flush()
}
