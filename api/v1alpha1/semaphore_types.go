// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Semaphore bounds, across runs, how many may use something at the same time: four GPUs, one
// deploy for each environment. Runs name it in spec.locks, steps in their locks. Each key has
// permits of its own. Its name has no dots, and 63 characters at most, as runs can name it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=sem,categories=syncopate
// +kubebuilder:printcolumn:name="Permits",type=integer,JSONPath=`.spec.permits`
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.held`
// +kubebuilder:printcolumn:name="Queued",type=integer,JSONPath=`.status.queued`
// +kubebuilder:printcolumn:name="OnBusy",type=string,JSONPath=`.spec.onBusy`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Order",type=string,priority=1,JSONPath=`.spec.order`
// +kubebuilder:printcolumn:name="Keys",type=integer,priority=1,JSONPath=`.status.keys`
// +kubebuilder:printcolumn:name="Busiest",type=string,priority=1,JSONPath=`.status.busiest[0].key`
// +kubebuilder:printcolumn:name="Holder",type=string,priority=1,JSONPath=`.status.busiest[0].holder`
// +kubebuilder:printcolumn:name="Starts",type=integer,priority=1,JSONPath=`.spec.rate.starts`
// +kubebuilder:printcolumn:name="Per-Seconds",type=integer,priority=1,JSONPath=`.spec.rate.perSeconds`
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || (self.metadata.name.size() <= 63 && !self.metadata.name.contains('.'))",optionalOldSelf=true,message="no run could name this Semaphore: its name has at most 63 characters, and no dots"
type Semaphore struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the semaphore says. Written by the platform team; a change counts for whoever
	// asks after it, and takes nothing from who holds permits.
	// +required
	Spec SemaphoreSpec `json:"spec"`
	// status says how it is used, at most half a minute ago. Written by the operator.
	// +optional
	Status *SemaphoreStatus `json:"status,omitempty"`
}

// SemaphoreList is a list of semaphores.
//
// +kubebuilder:object:root=true
type SemaphoreList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the semaphores.
	Items []Semaphore `json:"items"`
}

// OnBusy says what becomes of a run, or a step, that comes when a lock has no room.
//
// +kubebuilder:validation:Enum=Queue;DropNewest;KeepLatest;CancelOldest
type OnBusy string

const (
	// OnBusyQueue lets it wait.
	OnBusyQueue OnBusy = "Queue"
	// OnBusyDropNewest ends it as LockBusy.
	OnBusyDropNewest OnBusy = "DropNewest"
	// OnBusyKeepLatest lets the latest wait, and ends those that came before it as Superseded,
	// those of other namespaces as well. A run, also a child run, comes when it is created,
	// with its steps and items.
	OnBusyKeepLatest OnBusy = "KeepLatest"
	// OnBusyCancelOldest does as KeepLatest, and cancels the oldest run that holds the lock,
	// with its clean-up, whatever its namespace.
	OnBusyCancelOldest OnBusy = "CancelOldest"
)

// LockOrder says who of those that wait is next.
//
// +kubebuilder:validation:Enum=FirstRunnable;Ordered
type LockOrder string

const (
	// OrderFirstRunnable is the first in the queue that can have all of its locks.
	OrderFirstRunnable LockOrder = "FirstRunnable"
	// OrderOrdered is the first in the queue. While it waits for another lock, those behind
	// it wait, too.
	OrderOrdered LockOrder = "Ordered"
)

// SemaphoreSpec is what a semaphore says.
type SemaphoreSpec struct {
	// permits is how many there are of each key. Lowering it stops nobody: nobody new begins until
	// enough have ended.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	Permits int32 `json:"permits"`
	// namespaces selects by their labels those whose runs may use the semaphore. Absent: all.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="an operator of spec.namespaces is In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, !(e.operator in ['In', 'NotIn']) || (has(e.values) && e.values.size() > 0)) && self.matchExpressions.all(e, !(e.operator in ['Exists', 'DoesNotExist']) || !has(e.values) || e.values.size() == 0)",message="in spec.namespaces In and NotIn need values, Exists and DoesNotExist have none"
	Namespaces *metav1.LabelSelector `json:"namespaces,omitempty"`
	// onBusy says what becomes of a run, or a step, that comes when there is no
	// room. Default Queue.
	// +optional
	// +default="Queue"
	// +kubebuilder:default=Queue
	OnBusy OnBusy `json:"onBusy,omitempty"`
	// queue bounds the queue of each key.
	// +optional
	// +kubebuilder:default={}
	Queue LockQueue `json:"queue,omitempty"`
	// order says who of those that wait is next: by spec.priority of their runs, then age. A child
	// run counts as the run at the top, by its priority and age. Default FirstRunnable.
	// +optional
	// +default="FirstRunnable"
	// +kubebuilder:default=FirstRunnable
	Order LockOrder `json:"order,omitempty"`
	// rate bounds how many holds of a key may begin in a period, beside how many there may be at a
	// time. Absent: nothing does.
	// +optional
	Rate *LockRate `json:"rate,omitempty"`
}

// LockRate bounds how many holds of a key begin in any period of its length, however many permits
// each has. A hold that ends gives nothing back. When Redis has lost its data it is not known what
// began before: then nobody begins for one period, unless the semaphore is younger than the loss.
type LockRate struct {
	// starts is how many may begin in a period.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Starts int32 `json:"starts"`
	// perSeconds is the length of the period, in seconds.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	PerSeconds int32 `json:"perSeconds"`
}

// LockQueue bounds a queue.
type LockQueue struct {
	// maxLength is how many may wait for a key. Whoever comes when it is full ends as
	// LockQueueFull. Default 10000.
	// +optional
	// +default=10000
	// +kubebuilder:default=10000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxLength int32 `json:"maxLength,omitempty"`
	// ttlSeconds bounds, in seconds, how long one waits; then it ends as LockQueueTimeout.
	// Absent: no bound.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	TTLSeconds *int32 `json:"ttlSeconds,omitempty"`
}

// SemaphoreStatus says how a semaphore is used.
type SemaphoreStatus struct {
	// held is how many permits are held, of all keys together.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Held int32 `json:"held"`
	// queued is how many runs and steps wait.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Queued int32 `json:"queued"`
	// keys is how many keys are held or waited for.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Keys int32 `json:"keys"`
	// busiest are the keys for which the most wait, then those of which the most is held;
	// ten at most.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Busiest []KeyStatus `json:"busiest,omitempty"`
}

// KeyStatus says how a key of a semaphore is used.
type KeyStatus struct {
	// key of the semaphore; empty for the one without.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Key string `json:"key"`
	// held is how many of its permits are held.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Held int32 `json:"held"`
	// queued is how many runs and steps wait for it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Queued int32 `json:"queued"`
	// holder is the namespace/name of the run that holds it for the longest.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	Holder string `json:"holder,omitempty"`
}

// LockRequest is a lock that a run or a step needs: permits of a semaphore, or a mutex.
//
// +kubebuilder:validation:XValidation:rule="has(self.semaphore) != has(self.mutex)",message="a lock needs exactly one of semaphore and mutex"
// +kubebuilder:validation:XValidation:rule="!has(self.mutex) || (!has(self.key) && !has(self.permits))",message="a mutex has neither key nor permits"
type LockRequest struct {
	// semaphore names a Semaphore.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Semaphore string `json:"semaphore,omitempty"`
	// mutex names a lock that one run or step of the namespace may hold at a time. It needs no
	// object. May hold ${...} CEL expressions, as key.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Mutex string `json:"mutex,omitempty"`
	// key is which of the semaphore's: each key has permits of its own. May hold ${...} CEL
	// expressions over inputs, run and, for a step, the steps that it depends on. What they give is
	// at most 128 of letters, digits and ._:/@+=-. Absent: the one without a name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key,omitempty"`
	// permits is how many are needed, all at once. Default 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	Permits *int32 `json:"permits,omitempty"`
}

// LockHold is a lock that is held.
type LockHold struct {
	// name of the lock: "<semaphore>/<key>", or "mutex:<namespace>/<mutex>".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`
	// permits that are held.
	// +required
	// +kubebuilder:validation:Minimum=1
	Permits int32 `json:"permits"`
	// fence is greater than that of every earlier holder of the lock. Whatever a mutex protects can
	// refuse work with a lower one. A Semaphore may have several holders at a time: there it only
	// tells them apart.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9007199254740991
	Fence int64 `json:"fence"`
}

// LocksWait says that locks are waited for.
type LocksWait struct {
	// lock that was waited for when the wait began.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Lock string `json:"lock"`
	// startedAt is when the wait began; queue.ttlSeconds of a semaphore counts from it.
	// +required
	StartedAt metav1.Time `json:"startedAt"`
}
