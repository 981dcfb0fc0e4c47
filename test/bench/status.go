// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// blockWrites is how many writes of one variant are made before the next one's turn.
const blockWrites = 10

// statusCost measures what each rule of the CRD costs the API server in a status write: the same
// writes with the rule, and without it.
func statusCost(ctx context.Context, st *stage, r *report) (err error) {
	w, err := st.newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	variants, err := w.installVariants(ctx)
	if err != nil {
		return err
	}
	for _, n := range []int{1, 5, 20} {
		costs := make([]statusCosts, len(variants))
		objects := make([]*unstructured.Unstructured, len(variants))
		for i, v := range variants {
			if objects[i], err = w.createVariant(ctx, v, chain(n)); err != nil {
				return err
			}
		}
		bar := progress(fmt.Sprintf("status writes, %d steps", n), st.size(40, 2)*len(variants))
		for block := range st.size(40, 2) {
			for i := range variants {
				at := (i + block) % len(variants) // each goes first, second, ... equally often
				if err := w.writeBlock(ctx, objects[at], &costs[at]); err != nil {
					return fmt.Errorf("%s: %w", variants[at].name, err)
				}
				_ = bar.Add(1) // to stderr
			}
		}
		if err := bar.Finish(); err != nil {
			return err
		}
		reportCosts(r, fmt.Sprintf("%d steps", n), variants, costs)
	}
	r.note("A status write is a PUT of a whole status, by one client, one after the other. Each variant of the CRD is written in blocks of %d, in turn with the others.", blockWrites)
	r.note("CPU is that of kube-apiserver, by its CPU clock: the median of blocks. A share is what goes away with a rule, in percent; what is less than \"nothing left out\" says is noise.")
	return nil
}

// statusCosts are what the blocks of a variant cost, per write.
type statusCosts struct{ cpu, took []float64 } // ms

// writeBlock makes some status writes of an object, after one that is not counted.
func (w *world) writeBlock(ctx context.Context, o *unstructured.Unstructured, c *statusCosts) error {
	if err := w.writeVariant(ctx, o); err != nil {
		return err
	}
	server := childrenOf(os.Getpid())["kube-apiserver"]
	begin := time.Now()
	before, err := exactCPU(server)
	if err != nil {
		return err
	}
	for range blockWrites {
		if err := w.writeVariant(ctx, o); err != nil {
			return err
		}
	}
	c.took = append(c.took, millis(time.Since(begin))/blockWrites)
	after, err := exactCPU(server)
	if err != nil {
		return err
	}
	c.cpu = append(c.cpu, millis(after-before)/blockWrites)
	return nil
}

func reportCosts(r *report, steps string, variants []variant, costs []statusCosts) {
	shipped := median(costs[0].cpu)
	for i, v := range variants {
		cpu := median(costs[i].cpu)
		if v.whole {
			s := r.in("a status write, by variant of the CRD", v.name)
			s.add(steps+", CPU", "ms", cpu)
			s.add(steps+", took", "ms", median(costs[i].took))
		}
		if i > 0 {
			r.in("share of a status write", v.name).add(steps, "%", (shipped-cpu)/shipped*100)
		}
	}
}

// createVariant creates a run of the group of a variant.
func (w *world) createVariant(ctx context.Context, v variant, spec *v1alpha1.WorkflowRunSpec) (*unstructured.Unstructured, error) {
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.name, GenerateName: "cost-"}, Spec: *spec}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(run)
	if err != nil {
		return nil, fmt.Errorf("convert run: %w", err)
	}
	o := &unstructured.Unstructured{Object: fields}
	delete(o.Object, "status")
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: v.group, Version: v1alpha1.GroupVersion.Version, Kind: "WorkflowRun"})
	if err := w.k8s.Create(ctx, o); err != nil {
		return nil, fmt.Errorf("create run of %s: %w", v.group, err)
	}
	return o, nil
}

// writeVariant puts a whole status with the next fence.
func (w *world) writeVariant(ctx context.Context, o *unstructured.Unstructured) error {
	text, err := o.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encode run: %w", err)
	}
	var run v1alpha1.WorkflowRun
	if err := json.Unmarshal(text, &run); err != nil {
		return fmt.Errorf("decode run: %w", err)
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(nextStatus(&run))
	if err != nil {
		return fmt.Errorf("convert status: %w", err)
	}
	o.Object["status"] = status
	if err := w.k8s.Status().Update(ctx, o); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}
