// Scenarios of the official JavaScript client for version 0.3, unmodified, against servers.
//
// Usage: client_v0_3.mjs BINDING SCENARIO@URL... where BINDING is JSONRPC.
// Prints a line for each scenario that has passed; the first that fails ends the program with an error.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { EventEmitter, on, once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";

// The folder of the part is not above this file.
const { resolve } = createRequire(`${process.env.A2A_PART}/`);
const sdk = await import(resolve("@a2a-js/sdk/client"));

const RECEIPT = "https://allstop.dev/a2a/receipt/v1";
// Far more than an answer takes on a busy machine.
const WAIT_MS = 20_000;

const [binding, ...named] = process.argv.slice(2);
// Address of the scenario that runs.
let url;

function client({ token, ...clientConfig } = {}) {
  const fetchImpl = token === undefined ? undefined : authenticatingFetch(token);
  const transports = [new sdk.JsonRpcTransportFactory({ fetchImpl })];
  assert.equal(transports[0].protocolName, binding);
  return new sdk.ClientFactory({ transports, clientConfig }).createFromUrl(url);
}

function authenticatingFetch(token) {
  return sdk.createAuthenticatingFetchWithRetry(fetch, {
    headers: async () => (token === null ? {} : { Authorization: `Bearer ${token}` }),
    shouldRetryWithHeaders: async () => undefined,
  });
}

// Beside the protocol: what the test's own server knows.
const isRunning = async (task) => (await fetch(`${url}/test/running/${task}`)).json();
const openGate = async (gate) =>
  assert.ok((await fetch(`${url}/test/gates/${gate}`, { method: "POST" })).ok);

const scenarios = {
  async card() {
    for (const path of [undefined, "/.well-known/agent.json"]) {
      const card = await new sdk.DefaultAgentCardResolver().resolve(url, path);
      assert.deepEqual(
        [card.url, card.preferredTransport, card.protocolVersion],
        [url, "JSONRPC", "0.3.0"],
      );
      assert.deepEqual(card.additionalInterfaces, [{ url, transport: "JSONRPC" }]);
    }
  },

  async send() {
    const a2a = await client();
    const task = await a2a.sendMessage(request("chunks 3; complete"));
    assert.deepEqual([task.kind, task.status.state], ["task", "completed"]);
    assert.deepEqual(numbers(task.artifacts), [1, 2, 3]);
    assert.deepEqual(await a2a.getTask({ id: task.id }), task);
  },

  async send_without_waiting() {
    const a2a = await client({ polling: true });
    const gate = randomUUID();
    const { id, status } = await a2a.sendMessage(request(`gate ${gate}; complete`));
    assert.ok(["submitted", "working"].includes(status.state), status.state);
    await openGate(gate);
    let task;
    do task = await a2a.getTask({ id });
    while (task.status.state !== "completed");
  },

  // Content of every kind comes back as it was sent.
  async parts() {
    const a2a = await client();
    const sent = request("parts; complete");
    sent.message.parts.push(
      { kind: "file", file: { bytes: "aGVsbG8=", mimeType: "image/png", name: "ü.png" } },
      { kind: "file", file: { uri: "https://example.com/a?b=c&d=%20", mimeType: "text/html" } },
      { kind: "data", data: { a: [1, 2.5, null, true, "ü\n"], b: {} } },
      { kind: "text", text: "é\r\n\u2028\u2029\x85 ".repeat(10_000), metadata: { note: "text" } },
    );
    const events = await collect(a2a.sendMessageStream(sent));
    const { artifact } = events.find((event) => event.kind === "artifact-update");
    assert.deepEqual(artifact.parts, sent.message.parts);
  },

  // An agent may answer with a message. In a stream, a late message ends the task that came first.
  async reply() {
    const a2a = await client();
    const reply = await a2a.sendMessage(request("reply hello"));
    assert.deepEqual([reply.kind, reply.parts[0].text], ["message", "hello"]);
    const events = await collect(a2a.sendMessageStream(request("reply hello")));
    // A slow machine sends the task first.
    const { kind, status, final } = events.at(-1);
    if (kind === "message") {
      assert.equal(events.length, 1);
      assert.equal(events[0].parts[0].text, "hello");
    } else {
      assert.deepEqual([status.state, final], ["completed", true]);
      assert.equal(status.message.parts[0].text, "hello");
    }
  },

  async stream() {
    const a2a = await client();
    const events = await collect(a2a.sendMessageStream(request("chunks 300; complete")));
    assert.equal(events[0].kind, "task");
    assert.deepEqual(
      [events.at(-1).kind, events.at(-1).status.state, events.at(-1).final],
      ["status-update", "completed", true],
    );
    assert.deepEqual(numbersOf(events), range(300));
  },

  async cancel() {
    for (const lastStep of ["gate never", "ignore"]) {
      const a2a = await client();
      const events = [];
      let ended;
      for await (const event of a2a.sendMessageStream(request(`chunks 5; ${lastStep}`))) {
        events.push(event);
        if (numbersOf(events).length === 5 && !ended) {
          const { id } = events[0];
          assert.ok(await isRunning(id));
          const metadata = { [RECEIPT]: { cause: { detail: "lunch", by: "javascript" } } };
          ended = await a2a.cancelTask({ id, metadata });
          assert.ok(!(await isRunning(id)), "the executor works on");
        }
      }
      assert.equal(ended.status.state, "canceled");
      assert.deepEqual([events.at(-1).status.state, events.at(-1).final], ["canceled", true]);
      const receipt = ended.metadata[RECEIPT];
      assert.deepEqual(events.at(-1).metadata[RECEIPT], receipt);
      assert.deepEqual([receipt.receipt.quiet, receipt.cause.detail], [true, "lunch"]);
    }
  },

  // Cut off in mid-stream: the snapshot and the later events are the whole history.
  async resubscribe() {
    const a2a = await client();
    const [first, last] = [randomUUID(), randomUUID()];
    const text = `chunks 5; gate ${first}; chunks 300; gate ${last}; chunks 5; complete`;
    let seen = [];
    for await (const event of a2a.sendMessageStream(request(text))) {
      seen.push(event);
      if (numbersOf(seen).length === 5) break;
    }
    const { id } = seen[0];
    assert.ok(await isRunning(id), "a disconnect stopped the task");
    // The agent writes while the client subscribes.
    await openGate(first);
    seen = [];
    for await (const event of a2a.resubscribeTask({ id })) {
      seen.push(event);
      if (numbersOf(seen).at(-1) === 305) await openGate(last);
    }
    assert.equal(seen[0].kind, "task");
    assert.deepEqual(numbersOf(seen), range(310));
    assert.equal(seen.at(-1).status.state, "completed");
    await assert.rejects(collect(a2a.resubscribeTask({ id })), /-32004/);
  },

  async follow_up() {
    const a2a = await client();
    const events = await collect(a2a.sendMessageStream(request("chunks 1; ask which one?")));
    const { status, final, taskId, contextId } = events.at(-1);
    assert.deepEqual([status.state, final], ["input-required", true]);
    assert.equal(status.message.parts[0].text, "which one?");
    const task = await a2a.sendMessage(request("chunks 2; complete", { taskId, contextId }));
    assert.deepEqual([task.id, task.status.state], [taskId, "completed"]);
    assert.deepEqual(numbers(task.artifacts), [1, 2]);
    await assert.rejects(a2a.sendMessage(request("complete", { taskId })), isError(-32004));
  },

  async errors() {
    const a2a = await client();
    const none = { id: "none" };
    await assert.rejects(a2a.getTask(none), isError(-32001));
    await assert.rejects(a2a.cancelTask(none), isError(-32001));
    await assert.rejects(a2a.sendMessage(request("complete", { taskId: "none" })), isError(-32001));
    await assert.rejects(collect(a2a.resubscribeTask(none)), /-32001/);
    const task = await a2a.sendMessage(request("fail"));
    assert.equal(task.metadata[RECEIPT].error, "as the message says");
    await assert.rejects(a2a.cancelTask({ id: task.id }), isError(-32002));
  },

  // A webhook gets the task after each change of its status, with its token.
  async push() {
    const a2a = await client({ polling: true });
    const gate = randomUUID();
    const webhook = await startWebhook();
    const config = (id) => ({ id, url: webhook.url, token: "our token" });
    const sent = request(`gate ${gate}; chunks 3; complete`);
    sent.configuration = { pushNotificationConfig: config("first") };
    const { id: taskId } = await a2a.sendMessage(sent);
    const second = { taskId, pushNotificationConfig: config("second") };
    assert.deepEqual(await a2a.setTaskPushNotificationConfig(second), second);
    const ids = async () => {
      const configs = await a2a.listTaskPushNotificationConfig({ id: taskId });
      return configs.map((config) => config.pushNotificationConfig.id).sort();
    };
    assert.deepEqual(await ids(), ["first", "second"]);
    const named = { id: taskId, pushNotificationConfigId: "second" };
    assert.deepEqual(await a2a.getTaskPushNotificationConfig(named), second);
    await a2a.deleteTaskPushNotificationConfig(named);
    assert.deepEqual(await ids(), ["first"]);
    await openGate(gate);
    for await (const [{ headers }, body] of webhook.requests) {
      assert.equal(headers["x-a2a-notification-token"], "our token");
      const task = JSON.parse(body);
      assert.deepEqual([task.kind, task.id], ["task", taskId]);
      if (task.status.state !== "completed") continue;
      assert.deepEqual(numbers(task.artifacts), [1, 2, 3]);
      break;
    }
    webhook.server.close();
  },

  // The agent of `allstop serve --agent echo`.
  async echo() {
    const a2a = await client();
    const events = await collect(a2a.sendMessageStream(request("hello")));
    const kinds = ["task", "status-update", "artifact-update", "status-update"];
    assert.deepEqual(
      events.map((event) => event.kind),
      kinds,
    );
    assert.equal(events[2].artifact.parts[0].text, "hello");
  },

  async token() {
    const [right, wrong] = JSON.parse(readFileSync(0, "utf8"));
    for (const token of [right, wrong, null]) {
      const a2a = await client({ token });
      const sent = collect(a2a.sendMessageStream(request("hello")));
      if (token === right) {
        assert.equal((await sent).at(-1).status.state, "completed");
        const { capabilities } = await a2a.getAgentCard();
        assert.match(JSON.stringify(capabilities), /principal/);
        continue;
      }
      await assert.rejects(sent, /401/);
    }
  },
};

// Accepts every request, and queues its headers and body. A scenario reads few of them.
async function startWebhook() {
  const received = new EventEmitter();
  const requests = on(received, "request");
  const server = createServer(async (incoming, answer) => {
    const body = Buffer.concat(await incoming.toArray()).toString();
    answer.end();
    received.emit("request", incoming, body);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return { server, requests, url: `http://127.0.0.1:${server.address().port}/hook` };
}

function request(text, ids = {}) {
  const parts = [{ kind: "text", text }];
  return { message: { kind: "message", messageId: randomUUID(), role: "user", parts, ...ids } };
}

const range = (length) => Array.from({ length }, (_, index) => index + 1);

const numbers = (artifacts = []) =>
  artifacts.flatMap((artifact) => artifact.parts.map((part) => Number(part.text)));

// Numbers of the snapshots and of the chunks, as a client adds them up.
function numbersOf(events) {
  return events.flatMap((event) => {
    if (event.kind === "task") return numbers(event.artifacts);
    return event.kind === "artifact-update" ? numbers([event.artifact]) : [];
  });
}

const isError = (code) => (error) => error.errorResponse?.error.code === code;

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

for (const scenario of named) {
  const [name, address] = scenario.split("@");
  url = address;
  const limit = setTimeout(() => {
    console.error(`${name} takes longer than ${WAIT_MS} ms`);
    process.exit(1);
  }, WAIT_MS);
  await scenarios[name]();
  clearTimeout(limit);
  console.log(`passed ${name}`);
}
// Connections that are kept alive.
process.exit(0);
