// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"time"

	"github.com/nats-io/nats.go"
)

// Patient gives a client of a test half a minute to connect: on a busy machine the two seconds that
// nats.go gives it may not do.
func Patient() nats.Option { return nats.Timeout(30 * time.Second) }
