// SPDX-License-Identifier: Apache-2.0
// A whole Syncopate worker: docs/protocol.md in code. npm ci, then NATS_URL=... node worker.mjs [topic]
import { headers } from "@nats-io/transport-node";
import { JetStreamApiError, jetstream } from "@nats-io/jetstream";
import { createHash, randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { text } from "./json.mjs";
import { leave, prefix, start, stream } from "./nats.mjs";

const topic = process.argv[2] ?? "demo.node";
function number(name, otherwise, pattern, want) { // of the environment
  const said = process.env[name] || otherwise;
  if (pattern.test(said)) return Number(said);
  console.error(`${name}: want a whole number${want}`);
  return process.exit(2);
}
const concurrency = number("CONCURRENCY", "4", /^[1-9][0-9]{0,2}$/, ", 1 to 999"); // jobs at the same time
const seconds = number("GRACE_SECONDS", "20", /^[0-9]{1,6}$/, " of seconds, 0 to 999999"); // that they have after SIGTERM, some 15 less than the pod has
const grace = 1_000 * Number(seconds);
const mostInline = 64 << 10, chunk = 128 << 10; // bytes of an output in a result, and of a piece of a larger one
const most = process.env.NO_OBJECT_STORE === "1" ? mostInline : 8 << 20; // bytes of an output at all; a confined worker has no object store
const bucket = `${prefix}-payloads`; // the object store of large outputs
const log = (text) => console.error(`${topic}: ${text}`); // never a token, an input or an output

// The work. What a handler throws is a failure, with code and final if it has them; with a number as retryAfterMillis it is "not now",
// rounded up to whole milliseconds.
// signal is aborted when nobody wants the result any more, and also at the end of the grace period. Then throw, do not return, unless the work
// is done: what a handler returns is the output of a job that succeeded. If it throws, another worker begins the job anew. fences are those of the locks that protect the job, by lock. traceparent is the parent of a span.
const echo = async (input) => ({ youSaid: input });
async function conformance({ do: what, millis = 0, value, bytes = 0, code, message }, signal, fences, traceparent) { // see docs/workers.md
  if (what === "sleep") await sleep(millis, undefined, { signal });
  if (what === "succeed" || what === "sleep") return value;
  if (what === "fences") return fences;
  if (what === "trace") return traceparent;
  if (what === "large") return "x".repeat(bytes);
  if (what === "retry") throw { retryAfterMillis: millis };
  if (what === "fail" || what === "final") throw { code, message, final: what === "final" };
  throw { code: "InvalidInput", message: `do is ${what}`, final: true };
}
const handle = topic === "demo.conformance" ? conformance : echo;
const traces = process.env.OTEL_EXPORTER_OTLP_ENDPOINT ? await import("./traces.mjs") : undefined; // spans of jobs

const running = new Map(); // jobs under way, by id; stop(word) ends one without a result, word is the message that settles it
let stopping = false, pulls = 0; // those that are open
const ending = new AbortController(); // aborted when the worker stops
const late = new Map(); // messages that come while the worker stops, by place
const nc = await start(() => {
  if (stopping) return;
  stopping = true;
  ending.abort();
  log("stopping");
  setTimeout(() => running.forEach((job) => job.stop("nak")), grace).unref();
});
const js = jetstream(nc);

nc.subscribe(`${prefix}.control.*`, { callback: (err, m) => {
  try {
    const { action, jobs = [] } = m.json(), run = m.subject.split(".").at(-1);
    if (action === "Cancel") running.forEach((job) => { // what else there may be is not for us
      if (job.id.startsWith(`${run}/`) && (jobs.length === 0 || jobs.includes(job.id))) job.stop("ack");
    });
  } catch (err) { log(`control message not understood: ${err.message}`); }
} });

// read checks a message: who can write a header must not make us publish elsewhere. Undefined if it is no job.
function read(m) {
  const get = (name) => m.headers?.get(name) ?? "";
  const id = get("Nats-Msg-Id"), tokens = id.replaceAll("/", "."), reply = get("Syncopate-Reply");
  const [, answered] = reply.match(new RegExp(`^${prefix}\\.results\\.\\d\\d\\.(.+)$`)) ?? [];
  if (m.subject !== `${prefix}.jobs.${topic}.${tokens}` || answered !== tokens) return;
  const abort = new AbortController();
  const job = { id, reply, token: get("Syncopate-Token"), deadline: Date.parse(get("Syncopate-Deadline") || "9999-01-01"), signal: abort.signal };
  if (Number.isNaN(job.deadline) || !/^\d*$/.test(get("Syncopate-Fence"))) return;
  const fence = (text) => [text.slice(0, text.lastIndexOf("=")), Number(text.slice(text.lastIndexOf("=") + 1))]; // "<lock>=<n>"
  job.traceparent = get("traceparent"); // W3C trace context, the parent of a span for this job; empty if there are no traces
  job.fences = Object.fromEntries((m.headers?.values("Syncopate-Lock-Fence") ?? []).map(fence));
  if (Object.values(job.fences).some((n) => !(n > 0))) return; // NaN, too
  job.stop = (word) => { if (job.word !== "ack") job.word = word; abort.abort(); }; // "ack": it is not wanted, whatever comes later
  return job;
}

async function publish(job, result, suffix = "") { // resolves with the server's PubAck
  const h = headers();
  h.set("Syncopate-Token", job.token); // proves that we got the job
  return js.publish(job.reply, JSON.stringify(result), { msgID: `${job.id}/${job.token}${suffix}`, headers: h });
}

const base64url = (data) => Buffer.from(data).toString("base64").replaceAll("+", "-").replaceAll("/", "_"); // with padding

// store puts an output into the object store and gives the reference to it. What is there already is not stored again. (The package
// @nats-io/obj would do, too.) An error of the API says that a message was refused: the next try goes on with it. After all others
// it may be there or not, as when another one was the last (10071, 10164): the next try begins anew.
async function store(job, output) {
  const hash = createHash("sha256").update(output).digest(), hex = hash.toString("hex");
  const name = `${job.id}/${hex}`, digest = `SHA-256=${base64url(hash)}`, entry = `$O.${bucket}.M.${base64url(name)}`;
  const there = await nc.request(`$JS.API.DIRECT.GET.OBJ_${bucket}.${entry}`, "", { timeout: 5_000 });
  if (there.headers.code || !there.string().includes(digest)) {
    const size = Math.min(chunk, nc.info.max_payload - 1024);
    const up = job.upload ??= { nuid: `${job.id.split("/")[0]}.${randomUUID()}`, sent: 0, last: 0 };
    const subject = `$O.${bucket}.C.${up.nuid}`, h = headers();
    h.set("Nats-Rollup", "sub");
    const body = JSON.stringify({ name, bucket, nuid: up.nuid, size: output.length, chunks: Math.ceil(output.length / size), digest });
    try {
      for (; up.sent < output.length; up.sent += size)
        up.last = (await js.publish(subject, output.subarray(up.sent, up.sent + size), { expect: { lastSubjectSequence: up.last } })).seq;
      await js.publish(entry, body, { headers: h, expect: { lastSubjectSequence: up.last, lastSubjectSequenceSubject: subject } });
    } catch (err) {
      if (!(err instanceof JetStreamApiError) || [10071, 10164].includes(err.code)) delete job.upload;
      throw err;
    }
  }
  return { name, digest: `sha256:${hex}`, size: output.length };
}

const tooLarge = (message) => ({ status: "Failed", error: { code: "TooLarge", message }, final: true });

// failed is the result of a job whose handler threw. To read what it threw may throw, too.
function failed(err) {
  try {
    const millis = err?.retryAfterMillis;
    if (typeof millis === "number") return { status: "Retry", retryAfterMillis: Math.min(Math.max(Math.ceil(millis) || 0, 0), Number.MAX_SAFE_INTEGER) };
    const error = { code: String(err?.code ?? "Error").slice(0, 64), message: String(err?.message ?? err).slice(0, 2_000) };
    return { status: "Failed", error, final: Boolean(err?.final) };
  } catch { return { status: "Failed", error: { code: "Error", message: "what the handler threw cannot be read" } }; }
}

// whole keeps a whole number that is none of JavaScript's as it is written: who gives it back gives it back unchanged, and its value is
// BigInt(n.rawJSON). A Node that is too old for that refuses it. Beyond 64 bits there are no whole numbers to keep.
function whole(_, n, context) {
  if (!Number.isInteger(n) || Number.isSafeInteger(n) || context?.source === String(n)) return n;
  if (context?.source) return /^-?\d+$/.test(context.source) ? JSON.rawJSON(context.source) : n;
  if (Math.abs(n) <= 2 ** 64) throw new Error(`${n} is beyond 2^53, where this Node has not all whole numbers`);
  return n;
}

async function call(m, job) {
  let input;
  try {
    input = JSON.parse(m.string(), whole);
    if (input === null || typeof input !== "object" || Array.isArray(input)) throw new Error("not an object");
  } catch (err) { return { status: "Failed", error: { code: "InvalidInput", message: err.message }, final: true }; }
  return Promise.resolve().then(() => handle(input, job.signal, job.fences, job.traceparent)).then((output) => { // the handler need not be async
    let large;
    try { large = Buffer.from(text(output) ?? ""); } catch (err) { return failed({ code: "InvalidOutput", message: err?.message, final: true }); }
    if (large.length > most) return tooLarge(`the output has ${large.length} bytes, at most ${most} can be stored`);
    return large.length > mostInline ? { status: "Succeeded", large } : { status: "Succeeded", output };
  }).catch(failed);
}

// begin says Started, until the server has it: a job that nobody seems to have begun is ended by its startTimeoutSeconds.
function begin(job) {
  if (job.begins || job.begun || job.ended) return job.begins;
  job.begun = true; // until another message comes
  return job.begins = publish(job, { status: "Started" }, "/started")
    .catch((err) => { job.begun = false; log(`${job.id}: Started not published: ${err.message}`); })
    .finally(() => { job.begins = undefined; });
}

// work does a job, publishes its result, and gives the word that settles it.
async function work(m, job) {
  await begin(job);
  let result = await (traces ? traces.span(job, topic, () => call(m, job)) : call(m, job));
  job.ended = true;
  await job.begins; // the result is the last word
  let saves = result.status === "Succeeded"; // a value that comes after the grace period is worth one try
  for (let backoff = 100; !job.signal.aborted || (saves && job.word === "nak"); backoff = Math.min(2 * backoff, 5_000)) {
    saves = false;
    try {
      if (result.large) result = { status: result.status, outputRef: await store(job, result.large) };
      await publish(job, result);
      return "ack"; // only now: a worker that dies before loses nothing
    } catch (err) {
      log(`${job.id}: ${err.message}, publishing again`);
      const never = err.code === 10054 || err.message.includes("max_payload"); // the stream's limit, or the server's
      if (never) result = tooLarge(err.message);
      else await sleep(backoff, undefined, { signal: job.signal }).catch(() => {});
    }
  }
  return job.word;
}

// expired looks at the clock. It is said aloud: a wrong one here drops good jobs, and good work.
function expired(job, what) {
  const now = Date.now();
  if (now < job.deadline) return false;
  log(`${job.id}: ${what}, its deadline was ${new Date(job.deadline).toISOString()} and it is ${new Date(now).toISOString()}`);
  return true;
}

async function take(m) {
  const job = read(m);
  if (!job) return m.term("not a job");
  if (expired(job, "dropped")) return m.ack();
  const first = running.get(job.id), place = `${m.seq} ${m.timestampNanos}`; // which all deliveries of a message have in common
  if (first) { // NATS was away, or has lost data
    log(`${job.id}: is at work here already`);
    if (first.messages.has(place)) { // the server takes no NAK of a delivery by a consumer that was made anew since
      if (first.messages.get(place)) first.messages.set(place, m);
      return;
    }
    // A stream never goes back in its sequences: one that was stored before and has no lower one is gone. What is said of it would count
    // for the message in its place, which may be another job's.
    for (const [at, old] of first.messages) if (old && old.seq >= m.seq && old.timestampNanos < m.timestampNanos) first.messages.set(at, undefined);
    first.messages.set(place, m);
    first.begun = false; // the stream of results may be a new one, too
    return;
  }
  if (stopping) return late.set(place, m);
  job.messages = new Map([[place, m]]); // several if the stream has several messages of the job
  let ping, end;
  const tell = () => {
    job.messages.forEach((m) => m?.working());
    begin(job);
    ping = setTimeout(tell, pingEvery());
  };
  ping = setTimeout(tell, pingEvery());
  const watch = () => { // looks again each minute: a timer stands still while the machine sleeps, does not hear of a clock that is set, and has an end
    if (expired(job, "stopped")) return job.stop("ack");
    end = setTimeout(watch, Math.min(job.deadline - Date.now(), refresh));
  };
  watch();
  running.set(job.id, job);
  try {
    const word = await work(m, job);
    clearTimeout(ping);
    [...job.messages.values()].reverse().forEach((m) => m?.[word]()); // if it is lost, the job comes again and does no harm
  } finally {
    clearTimeout(ping);
    clearTimeout(end);
    running.delete(job.id);
  }
}

const refresh = 60_000; // milliseconds after which AckWait is read again: who lowers it restarts no worker
let ackWait = 30_000, binding; // milliseconds; the consumer, or the search for it
const pingEvery = () => Math.min(ackWait / 3, refresh); // a lower AckWait counts at the server before it is read here
async function look() {
  const consumer = await js.consumers.get(stream, topic.replaceAll(".", "_"));
  ackWait = (await consumer.info(true)).config.ack_wait / 1e6;
  return consumer;
}
setInterval(() => look().catch(() => {}), refresh).unref(); // of what fails the next pull tells

const mostBind = 5_000; // milliseconds between two looks for a consumer that is not there
// bind waits for the consumer, which the operator makes when it dispatches the topic's first job. One slot asks, for all; less and less
// often while the server says that there is none.
const bind = () => binding ??= (async () => {
  for (let wait = 1_000; !stopping; wait = Math.min(2 * wait, mostBind)) {
    try { return await look(); } catch (err) {
      log(`${err.message}, again in a moment`);
      if (!(err instanceof JetStreamApiError)) wait = 1_000;
    }
    await sleep(Math.min(wait * (0.5 + Math.random()), mostBind), undefined, { signal: ending.signal }).catch(() => {});
  }
})();

// slot does one job after the other: none waits in this process while another worker could do it.
async function slot() {
  while (!stopping) {
    try {
      const consumer = await bind();
      while (!stopping) {
        pulls++;
        const m = await consumer.next({ expires: 2_000 }).finally(() => pulls--);
        if (m) await take(m);
      }
    } catch (err) {
      binding = undefined;
      log(`${err.message}, again in a moment`);
      await sleep(500 + 1500 * Math.random());
    }
  }
  if (pulls) return; // an open one would get at once what goes back, and each delivery counts
  late.forEach((m) => m.nak());
  late.clear();
}
await Promise.all(Array.from({ length: concurrency }, slot));
await leave(nc, traces?.shutdown);
