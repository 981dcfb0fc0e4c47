// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	maxCode    = 64   // bytes of an error's code
	maxMessage = 2048 // bytes of an error's message: it ends in the run's status
)

// resultOf maps what a handler returned to what is published. It is total.
func resultOf(output any, err error) protocol.Result {
	if err == nil {
		return succeeded(output)
	}
	r := protocol.Result{Status: protocol.StatusFailed, Error: describe(err)}
	_, fin := errors.AsType[*finalError](err)
	var d delayer
	switch {
	case fin:
		r.Final = true
	case errors.As(err, &d):
		r.Status = protocol.StatusRetry
		r.RetryAfterMillis = millis(d.RetryDelay())
	}
	return r
}

func succeeded(output any) protocol.Result {
	r := protocol.Result{Status: protocol.StatusSucceeded}
	if output == nil {
		return r
	}
	body, err := encode(output)
	if err != nil {
		return resultOf(nil, Final(Fail(CodeInvalidOutput, err.Error())))
	}
	if len(body) > protocol.MaxPayloadBytes {
		return resultOf(nil, Final(Fail(CodeTooLarge, fmt.Sprintf("the output has %d bytes, at most %d can be stored", len(body), protocol.MaxPayloadBytes))))
	}
	if !utf8.Valid(body) { // raw JSON goes out as it is, and the operator takes none that is not UTF-8
		return resultOf(nil, Final(Fail(CodeInvalidOutput, "the output is not UTF-8")))
	}
	if bytes.Contains(body, []byte(replaced)) && !allUTF8(reflect.ValueOf(output)) {
		return resultOf(nil, Final(Fail(CodeInvalidOutput, "a string of the output is not UTF-8")))
	}
	r.Output = body
	return r
}

// encode is json.Marshal that leaves < > & as they are: with six bytes for each, a page of HTML
// would be too large that is not.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func describe(err error) *protocol.ResultError {
	e := &protocol.ResultError{Code: CodeError, Message: err.Error()}
	if f, ok := errors.AsType[*failureError](err); ok {
		e.Code = f.code
		if err.Error() == f.Error() { // nothing was wrapped around it: the code need not be said twice
			e.Message = f.message
		}
	}
	e.Code, e.Message = cut(e.Code, maxCode), cut(e.Message, maxMessage)
	return e
}

// cut shortens s to n bytes of whole characters.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}

// millis rounds up, so that no job comes back sooner than asked. It adds after it divided: before,
// the longest durations would overflow, and come back at once.
func millis(d time.Duration) int64 {
	n := d.Milliseconds()
	if d%time.Millisecond > 0 {
		n++
	}
	return max(0, n)
}

// message is a result on the wire.
func message(t task, msgID string, r protocol.Result) (*nats.Msg, error) {
	body, err := encode(r)
	if err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	m := nats.NewMsg(t.reply)
	m.Data = body
	m.Header.Set(protocol.HeaderMsgID, msgID)
	m.Header.Set(protocol.HeaderToken, t.token)
	return m, nil
}
