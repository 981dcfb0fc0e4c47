// SPDX-License-Identifier: Apache-2.0
// Spans of jobs, by OpenTelemetry's SDK. worker.mjs loads this where OTEL_EXPORTER_OTLP_ENDPOINT says where they go; OTEL_SERVICE_NAME
// and the SDK's other variables count as well.
import { ROOT_CONTEXT, SpanKind, SpanStatusCode, context, propagation, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { AlwaysOnSampler, BatchSpanProcessor, ParentBasedSampler, TracerProvider } from "@opentelemetry/sdk-trace";

const provider = new TracerProvider({
  resource: resourceFromAttributes({ "service.name": process.env.OTEL_SERVICE_NAME ?? "syncopate-worker-node" }),
  sampler: new ParentBasedSampler({ root: new AlwaysOnSampler() }),
  spanProcessors: [new BatchSpanProcessor({ exporter: new OTLPTraceExporter(), scheduledDelayMillis: 1_000 })],
});
context.setGlobalContextManager(new AsyncLocalStorageContextManager()); // what a handler calls has the span in its context
propagation.setGlobalPropagator(new W3CTraceContextPropagator());
trace.setGlobalTracerProvider(provider);
const tracer = trace.getTracer("syncopate");

// span calls work, which gives a job's result, within a span below the one that the job names. A job without a trace, and one of a
// trace that is not sampled, has none.
export async function span(job, topic, work) {
  if (!job.traceparent) return work();
  const parent = propagation.extract(ROOT_CONTEXT, { traceparent: job.traceparent });
  const one = tracer.startSpan(`process ${topic}`, { kind: SpanKind.CONSUMER, attributes: {
    "messaging.system": "nats", "messaging.operation.type": "process", "messaging.destination.name": topic, "messaging.message.id": job.id,
  } }, parent);
  try {
    const result = await context.with(trace.setSpan(parent, one), work);
    if (result.status === "Failed") one.setStatus({ code: SpanStatusCode.ERROR, message: result.error.code });
    return result;
  } finally { one.end(); }
}

export const shutdown = () => provider.shutdown().catch((err) => console.error(`spans are lost: ${err.message}`));
