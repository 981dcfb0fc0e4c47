// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// wantNothingLoose checks that all parts belong to objects.
func wantNothingLoose(t *testing.T, b *Store) {
	t.Helper()
	if loose, err := b.LooseParts(t.Context(), 0); err != nil || len(loose) > 0 {
		t.Errorf("loose parts: %v (%v)", loose, err)
	}
}

// mutation: Put without dropTry after a part that was refused makes this fail.
func TestARefusedUploadDoesNotKeepTheStoreFull(t *testing.T) {
	b := newStore(t, natstest.Start(t), func(c *config) { c.MaxBytes.Payloads = 1 << 20 })
	put := func(n, size int) error {
		data := bytes.Repeat([]byte("x"), size)
		return b.Put(t.Context(), protocol.NewOutputRef(bustest.JobID(n), data), data)
	}
	if err := put(1, 600<<10); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := put(2, 900<<10); !errors.Is(err, bus.ErrNoRoom) {
			t.Fatalf("900 KiB: %v", err)
		}
	}
	wantNothingLoose(t, b)
	if err := put(3, 100<<10); err != nil {
		t.Errorf("100 KiB: %v", err)
	}
	wantNothingLoose(t, b)
}

// mutation: Put without dropTry after an entry that was refused makes this fail.
func TestPartsGoWhoseEntryIsRefused(t *testing.T) {
	b := newStore(t, natstest.Start(t), func(c *config) { c.MaxBytes.Payloads = 256 << 10 })
	for size := 256 << 10; ; size -= 64 {
		data := bytes.Repeat([]byte("x"), size)
		err := b.Put(t.Context(), protocol.NewOutputRef(bustest.JobID(1), data), data)
		if err == nil {
			t.Fatalf("%d bytes find room, and no more than that did not", size)
		}
		wantNothingLoose(t, b)
		if strings.Contains(err.Error(), "store entry of output") {
			return
		}
	}
}

// mutation: dropTry that ends with the context of its caller makes this fail.
func TestTheTimeOfACallerDoesNotKeepPartsBehind(t *testing.T) {
	b := newStore(t, natstest.Start(t))
	data := bytes.Repeat([]byte("x"), 100)
	ref := protocol.NewOutputRef(bustest.JobID(1), data)
	id, _ := protocol.PayloadRun(ref.Name)
	nuid := protocol.PayloadNUID(id, "1")
	if _, err := b.putParts(t.Context(), nuid, data); err != nil {
		t.Fatal(err)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	b.dropTry(ended, nuid)
	wantNothingLoose(t, b)
}
