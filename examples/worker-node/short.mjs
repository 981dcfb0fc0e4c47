// SPDX-License-Identifier: Apache-2.0
// The least that is a worker. It does one job at a time; what it leaves out is in worker.mjs: Started, Retry, cancelling, large outputs,
// codes of errors, publishing again without doing the job again, whole numbers beyond 2^53, which come out changed. npm ci, then NATS_URL=... node short.mjs [topic]
import { headers } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";
import { text } from "./json.mjs";
import { leave, prefix, start, stream } from "./nats.mjs";

const handle = async (input) => ({ youSaid: input }); // the work; what it throws fails the attempt
let stopping = false; const topic = process.argv[2] ?? "demo.node", nc = await start(() => { stopping = true; }), js = jetstream(nc);
const failed = (message, code = "Error", final = false) => JSON.stringify({ status: "Failed", error: { code, message }, final });

async function work(m, ackWait) {
  const get = (name) => m.headers?.get(name) ?? "", id = get("Nats-Msg-Id"), reply = get("Syncopate-Reply"), token = get("Syncopate-Token");
  const tokens = id.replaceAll("/", "."), [, answered] = reply.match(new RegExp(`^${prefix}\\.results\\.\\d\\d\\.(.+)$`)) ?? [];
  if (m.subject !== `${prefix}.jobs.${topic}.${tokens}` || answered !== tokens) return m.term("not a job");
  if (Date.now() >= Date.parse(get("Syncopate-Deadline") || "9999-01-01")) return m.ack(); // nobody waits for it
  const ping = setInterval(() => m.working(), Math.min(ackWait / 3, 60_000)), h = headers(); // else another worker gets the job, too
  h.set("Syncopate-Token", token); // proves that we got the job
  try {
    const json = (output) => { try { return text({ status: "Succeeded", output }); } catch (err) { return failed(String(err.message).slice(0, 2_000), "InvalidOutput", true); } };
    const result = await (async () => handle(m.json()))().then(json)
      .then((made) => Buffer.byteLength(made) > 64 * 1024 + 32 ? failed("an output is at most 64 KiB here", "TooLarge", true) : made)
      .catch((err) => failed(String(err?.message ?? err).slice(0, 2_000))).catch(() => failed("what the handler threw cannot be read"));
    await js.publish(reply, result, { msgID: `${id}/${token}`, headers: h }); // with the server's PubAck
    m.ack(); // only now: a worker that dies before loses nothing
  } finally { clearInterval(ping); }
}

for (let wait = 1_000; !stopping;) {
  try { // the operator makes the consumer when it dispatches the topic's first job
    const consumer = await js.consumers.get(stream, topic.replaceAll(".", "_"));
    const ackWait = (await consumer.info(true)).config.ack_wait / 1e6; // milliseconds
    for (const until = Date.now() + 60_000; !stopping && Date.now() < until; wait = 1_000) { // then AckWait is read again
      const m = await consumer.next({ expires: 2_000 });
      if (m) await (stopping ? m.nak() : work(m, ackWait));
    }
  } catch (err) {
    console.error(`${topic}: ${err.message}, again in a moment`);
    await new Promise((go) => setTimeout(go, Math.min(wait * (0.5 + Math.random()), 5_000)));
    wait = Math.min(2 * wait, 5_000);
  }
}
await leave(nc);
