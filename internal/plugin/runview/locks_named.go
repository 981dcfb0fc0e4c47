// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"strings"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
)

// Matching are the locks of a name: that of a semaphore stands for all its keys, "mutex:NAME" for a
// mutex of the namespace. A mutex that nobody holds is free, and so is a key of a semaphore.
func Matching(all []Lock, namespace, name string) []Lock {
	mutex, isMutex := strings.CutPrefix(name, render.MutexPrefix)
	long := render.MutexPrefix + namespace + "/" + mutex
	found := []Lock{}
	for _, l := range all {
		if l.Lock == name || strings.HasPrefix(l.Lock, name+"/") || isMutex && l.Lock == long {
			found = append(found, l)
		}
	}
	switch {
	case len(found) > 0:
		return found
	case isMutex && strings.Contains(mutex, "/"):
		return freeMutex(name)
	case isMutex:
		return freeMutex(long)
	default:
		return freeKey(all, name)
	}
}

func freeMutex(name string) []Lock {
	return []Lock{{Lock: name, Permits: new(int32(1)), OnBusy: v1alpha1.OnBusyQueue, Order: v1alpha1.OrderFirstRunnable}}
}

// freeKey is a key of a semaphore that nobody holds; nil if there is no such semaphore.
func freeKey(all []Lock, name string) []Lock {
	of, _, _ := strings.Cut(name, "/")
	for _, l := range all {
		if sem := l.semaphore; sem != nil && sem.Name == of {
			return []Lock{{Lock: name, Permits: &sem.Spec.Permits, OnBusy: sem.Spec.OnBusy, Order: sem.Spec.Order, Rate: sem.Spec.Rate}}
		}
	}
	return nil
}
