# SPDX-License-Identifier: Apache-2.0
"""Spans of jobs for an OpenTelemetry collector, as OTLP in JSON over HTTP, with nothing but Python's standard library.

They go to $OTEL_EXPORTER_OTLP_ENDPOINT; without it there are none. Where OpenTelemetry's own SDK may be installed, use that.
"""
import contextlib, json, os, queue, re, secrets, sys, threading, time
from urllib.request import Request, urlopen

ENDPOINT = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").rstrip("/")
SERVICE = os.environ.get("OTEL_SERVICE_NAME", "syncopate-worker-python")
WAITING, BATCH, TIMEOUT = 2048, 256, 10  # spans that wait for the collector; spans in a request; seconds that it has
CONSUMER, ERROR = 5, 2  # by their numbers in OTLP

_spans = queue.Queue(WAITING)


@contextlib.contextmanager
def span(name, parent, attributes):
    """A span around some work, below the span that a traceparent names. It gives a function that takes the job's result."""
    place = re.fullmatch(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", parent)
    if not ENDPOINT or not place or not int(place[3], 16) & 1:  # nobody asked for it
        yield lambda result: None
        return
    one = {"traceId": place[1], "parentSpanId": place[2], "spanId": secrets.token_hex(8), "name": name, "kind": CONSUMER,
           "startTimeUnixNano": str(time.time_ns()), "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()]}

    def end(result):
        if result and result["status"] == "Failed":
            one["status"] = {"code": ERROR, "message": result["error"]["code"]}
    try:
        yield end
    finally:
        one["endTimeUnixNano"] = str(time.time_ns())
        try:
            _spans.put_nowait(one)
        except queue.Full:
            pass  # no job waits for a collector


def start():
    """Begins to send. The thread has the signals that its caller has, so those that are waited for have to be blocked before."""
    if ENDPOINT:
        threading.Thread(target=_send, daemon=True).start()


def flush(seconds):
    """Waits until the collector has all spans, but no longer."""
    over = time.monotonic() + seconds
    while _spans.unfinished_tasks and time.monotonic() < over:
        time.sleep(0.02)


def _send():
    while True:
        batch = [_spans.get()]
        while len(batch) < BATCH and not _spans.empty():
            batch.append(_spans.get())
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": SERVICE}}]}
        body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "syncopate"}, "spans": batch}]}]}
        try:
            request = Request(ENDPOINT + "/v1/traces", json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urlopen(request, timeout=TIMEOUT):
                pass
        except Exception as err:  # whatever it is, they are lost: a worker has better things to keep; nobody else sends the next ones
            print(f"{len(batch)} spans are lost: {type(err).__name__}: {err}", file=sys.stderr, flush=True)
        for _ in batch:
            _spans.task_done()
