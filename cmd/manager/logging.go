// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// newLogger is the log of this process, as its flags say. The context ends when the process is
// asked to stop.
func newLogger(ctx context.Context, flags *zap.Options) logr.Logger {
	return zap.New(zap.UseFlagOptions(flags), zap.RawZapOpts(uberzap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return orderly{c, ctx}
	})))
}

// orderly is a log without the errors that no orderly end lacks. A leader that stops gives its lead
// back, and controller-runtime logs that as a lead that was lost, with a stack trace; one that is
// really lost ends the process with that error, which is not of this message. And what the stop
// cuts off, say an event that is on its way, libraries log as an error, with a stack trace each: it
// is an information without one here.
type orderly struct {
	zapcore.Core
	ctx context.Context //nolint:containedctx // of the process; what is logged has none
}

const (
	afterStop = "error received after stop sequence was engaged"
	givenBack = "leader election lost"
)

// With implements zapcore.Core.
func (c orderly) With(fields []zapcore.Field) zapcore.Core {
	return orderly{c.Core.With(fields), c.ctx}
}

// Check implements zapcore.Core. The core within decides on all that is no error of a process that
// stops, so it goes on sampling that.
func (c orderly) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if entry.Message != afterStop && !c.cut(entry) || !c.Enabled(entry.Level) {
		return c.Core.Check(entry, checked)
	}
	return checked.AddCore(entry, c)
}

// cut says whether an entry may be of something that the stop cuts off.
func (c orderly) cut(entry zapcore.Entry) bool {
	return entry.Level == zapcore.ErrorLevel && c.ctx.Err() != nil
}

// Write implements zapcore.Core, for entries that Check has kept.
func (c orderly) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	for _, f := range fields {
		err, is := f.Interface.(error)
		if !is {
			continue
		}
		if entry.Message == afterStop && err.Error() == givenBack {
			return nil
		}
		if c.cut(entry) && errors.Is(err, context.Canceled) {
			entry.Level, entry.Stack = zapcore.InfoLevel, ""
		}
	}
	if !c.Enabled(entry.Level) {
		return nil
	}
	return c.Core.Write(entry, fields) //nolint:wrapcheck // of the core, for the core's caller
}
