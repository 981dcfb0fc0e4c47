// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

// A server that takes connections and says nothing keeps people's tools no longer than they have.
//
// mutation: without the bound by ctx it takes CallTimeout.
func TestDialTakesNoLongerThanItsContext(t *testing.T) {
	var config net.ListenConfig
	silent, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, _, err := bus.Dial(ctx, bus.Config{URL: "nats://" + silent.Addr().String()}); !errors.Is(err, bus.ErrUnreachable) {
		t.Errorf("error %v", err)
	}
	if took := time.Since(begin); took > bus.CallTimeout/2 {
		t.Errorf("it took %s", took)
	}
}
