// SPDX-License-Identifier: Apache-2.0
// Where NATS is, who this is to it, and what the names of the installation begin with: from the environment. NATS_URL alone does for a trial.
const env = process.env;

export const prefix = env.SYNCOPATE_PREFIX ?? "syncopate"; // the operator's --nats-prefix
export const stream = `${prefix.toUpperCase().replaceAll("-", "_")}_JOBS`;

// Credentials rotate, so a refused login is no reason to give up; and without pings nothing tells that a connection went silent.
export const options = {
  servers: env.NATS_URL?.split(","), user: env.NATS_USER, pass: env.NATS_PASSWORD, inboxPrefix: env.INBOX_PREFIX ?? "_INBOX",
  maxReconnectAttempts: -1, waitOnFirstConnect: true, ignoreAuthErrorAbort: true, pingInterval: 5_000,
};
if (env.NATS_CA || env.NATS_CERT) options.tls = { caFile: env.NATS_CA, certFile: env.NATS_CERT, keyFile: env.NATS_KEY }; // read for each connection
