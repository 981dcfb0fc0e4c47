// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"
)

// logBook writes the logs of all containers of some namespaces into files while they run: a pod
// that a spec deletes takes its log with it.
type logBook struct {
	ctx  context.Context //nolint:containedctx // of the goroutines that the book owns; close ends it
	stop context.CancelFunc
	dir  string
	all  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	seen   map[string]bool // containers that have a writer, by pod's UID, name and number of starts
}

func newLogBook(ctx context.Context, dir string, namespaces ...string) *logBook {
	b := &logBook{dir: dir, seen: map[string]bool{}}
	b.ctx, b.stop = context.WithCancel(ctx)
	for _, ns := range namespaces {
		factory := informers.NewSharedInformerFactoryWithOptions(core, 0, informers.WithNamespace(ns))
		informer := factory.Core().V1().Pods().Informer()
		_, _ = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    b.look,
			UpdateFunc: func(_, now any) { b.look(now) },
		})
		b.all.Go(func() { informer.RunWithContext(b.ctx) })
	}
	return b
}

// look follows the containers of a pod that have started and are not followed yet.
func (b *logBook) look(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running == nil && c.State.Terminated == nil {
			continue
		}
		key := fmt.Sprintf("%s/%s/%d", pod.UID, c.Name, c.RestartCount)
		b.mu.Lock()
		if !b.seen[key] && !b.closed {
			b.seen[key] = true
			name := fmt.Sprintf("%s-%s-%s-%d.log", pod.Namespace, pod.Name, c.Name, c.RestartCount)
			if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways && len(pod.OwnerReferences) > 0 && pod.OwnerReferences[0].Kind == "StatefulSet" {
				name = fmt.Sprintf("%s-%s-%.8s-%s-%d.log", pod.Namespace, pod.Name, pod.UID, c.Name, c.RestartCount) // names come again
			}
			b.all.Go(func() { b.follow(pod.Namespace, pod.Name, c.Name, filepath.Join(b.dir, name)) })
		}
		b.mu.Unlock()
	}
}

// follow copies a log until the container ends. A stream that breaks before it began is
// asked for again.
func (b *logBook) follow(namespace, pod, container, file string) {
	f, err := os.Create(file)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	for range 5 {
		stream, err := core.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container, Follow: true}).Stream(b.ctx)
		if err == nil {
			_, _ = io.Copy(f, stream)
			_ = stream.Close()
			return
		}
		select {
		case <-b.ctx.Done():
			return
		case <-time.After(retryPause):
		}
	}
}

// close ends all writers and waits for them.
func (b *logBook) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.stop()
	b.all.Wait()
}
