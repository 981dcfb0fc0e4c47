// A whole Syncopate worker: docs/protocol.md in code. NATS_URL=... node worker.mjs [topic]
import { connect, headers } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";

const topic = process.argv[2] ?? "demo.node";
const handle = async (input) => ({ youSaid: input }); // the work
const nc = await connect({ servers: process.env.NATS_URL, maxReconnectAttempts: -1, waitOnFirstConnect: true });
const js = jetstream(nc);
let stopping = false;
process.once("SIGTERM", () => (stopping = true));

async function work(job) {
  const id = job.headers.get("Nats-Msg-Id"), token = job.headers.get("Syncopate-Token");
  const publish = (result, msgID) => { // resolves with the server's PubAck
    const h = headers();
    h.set("Syncopate-Token", token); // proves that we got the job
    return js.publish(job.headers.get("Syncopate-Reply"), JSON.stringify(result), { msgID, headers: h });
  };
  const ping = setInterval(() => job.working(), 10_000); // a third of AckWait
  try {
    await publish({ status: "Started" }, `${id}/${token}/started`);
    const result = await handle(job.json()).then(
      (output) => ({ status: "Succeeded", output }),
      (err) => ({ status: "Failed", error: { code: "Error", message: String(err?.message ?? err) } }));
    await publish(result, `${id}/${token}`);
    await job.ackAck(); // only now: a worker that dies before loses nothing
  } finally { clearInterval(ping); }
}

while (!stopping) {
  try { // the operator makes the consumer when it dispatches the topic's first job
    const consumer = await js.consumers.get("SYNCOPATE_JOBS", topic.replaceAll(".", "_"));
    for (let job; !stopping; job = await consumer.next({ expires: 2_000 })) if (job) await work(job);
  } catch (err) {
    console.error(`${topic}: ${err.message}, again in 2 s`);
    await new Promise((resolve) => setTimeout(resolve, 2_000));
  }
}
await nc.drain();
