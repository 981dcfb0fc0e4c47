// SPDX-License-Identifier: Apache-2.0
// Where NATS is, who this is to it, and what the names of the installation begin with: from the environment. NATS_URL alone does for a trial.
import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "@nats-io/transport-node";

const env = process.env;

export const prefix = env.SYNCOPATE_PREFIX ?? "syncopate"; // the operator's --nats-prefix
export const stream = `${prefix.toUpperCase().replaceAll("-", "_")}_JOBS`;

// refuse ends the process. It quotes nothing: a password may be anywhere in an address that cannot be read.
function refuse(want) {
  console.error(`NATS_URL: want ${want}; in a user or password write what URLs use as %XX`);
  return process.exit(2);
}

// address reads one of NATS_URL. The library leaves out the login in it, and quotes one that it cannot read. A user without a
// colon is a token.
function address(text) {
  try {
    const { protocol, username, password, host, pathname, search, hash } = new URL(text.includes("://") ? text : `nats://${text}`);
    const [user, pass] = [username, password].map(decodeURIComponent);
    const login = pass || /:@[^@]*$/.test(text) ? { user, pass } : { token: user };
    if (["nats:", "tcp:", "tls:"].includes(protocol) && host && !`${pathname}${search}${hash}`.replace("/", ""))
      return { host, login: user && JSON.stringify(login), tls: protocol === "tls:" };
  } catch { /* its text may have the password */ }
  return refuse("nats://[user:password@ or token@]host[:port], or tls://, and an IPv6 address in brackets");
}
const all = (env.NATS_URL || "nats://127.0.0.1:4222").split(",").map((one) => one.trim()).filter(Boolean).map(address);
const logins = new Set(all.map((one) => one.login).filter(Boolean)); // the library has one for all servers
if (!all.length || logins.size > 1) refuse("servers with one login");
const login = logins.size ? JSON.parse([...logins][0]) : { user: env.NATS_USER, pass: env.NATS_PASSWORD };

// Credentials rotate, so a refused login is no reason to give up; and without pings nothing tells that a connection went silent.
const options = {
  servers: all.map((one) => one.host), ...login, inboxPrefix: env.INBOX_PREFIX ?? "_INBOX",
  maxReconnectAttempts: -1, waitOnFirstConnect: true, ignoreAuthErrorAbort: true, pingInterval: 5_000,
};
if (env.NATS_CA || env.NATS_CERT || all.some((one) => one.tls))
  options.tls = { caFile: env.NATS_CA, certFile: env.NATS_CERT, keyFile: env.NATS_KEY }; // read for each connection

// stray tells of a promise that failed and that nobody awaits, as where a handler forgot an await. Node would end the process for it, and
// the jobs of others with it. To read what it failed with may throw, too. It is quoted if it is an Error only: other things may be inputs.
function stray(err) {
  let what = "cannot be read";
  try { what = err instanceof Error ? String(err.stack) : `is no Error, but of the type ${typeof err}`; } catch { /* so it is */ }
  console.error(`a promise failed that nobody awaits, the worker goes on; why ${what}`);
}

// start connects, however long that takes. SIGTERM calls stop, each time; before there is a connection it ends the process.
export async function start(stop) {
  let nc;
  process.on("unhandledRejection", stray); // what a callback throws, as of a timer, still ends the process: nobody knows what it left half done
  process.on("SIGTERM", () => (nc ? stop() : process.exit(0)));
  return nc = await connect(options);
}

// leave ends the process when the server has all that was said, and last is done. It waits for no server that is away.
export async function leave(nc, last) {
  await Promise.race([nc.drain(), sleep(5_000).then(() => { throw new Error("no answer"); })])
    .catch((err) => console.error(`last words may be lost, their jobs come again: ${err.message}`));
  await last?.();
  process.exit(); // also while the client looks for its server
}
