// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/go-logr/logr"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// newLogger is the log of this process, as its flags say.
func newLogger(flags *zap.Options) logr.Logger {
	return zap.New(zap.UseFlagOptions(flags), zap.RawZapOpts(uberzap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return orderly{c}
	})))
}

// orderly is a log without the one error that no orderly end lacks: a leader that stops gives its
// lead back, and controller-runtime logs that as a lead that was lost, with a stack trace. A lead
// that is really lost ends the process with that error, which is not of this message.
type orderly struct{ zapcore.Core }

const (
	afterStop = "error received after stop sequence was engaged"
	givenBack = "leader election lost"
)

// With implements zapcore.Core.
func (c orderly) With(fields []zapcore.Field) zapcore.Core { return orderly{c.Core.With(fields)} }

// Check implements zapcore.Core. The core within decides on all other messages, so it goes
// on sampling them.
func (c orderly) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if entry.Message != afterStop || !c.Enabled(entry.Level) {
		return c.Core.Check(entry, checked)
	}
	return checked.AddCore(entry, c)
}

// Write implements zapcore.Core, for messages that Check has kept.
func (c orderly) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	for _, f := range fields {
		if err, is := f.Interface.(error); is && err.Error() == givenBack {
			return nil
		}
	}
	return c.Core.Write(entry, fields) //nolint:wrapcheck // of the core, for the core's caller
}
