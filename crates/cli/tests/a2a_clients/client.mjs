// Scenarios of the official JavaScript client, unmodified, against servers.
//
// Usage: client.mjs BINDING SCENARIO@URL... where BINDING is JSONRPC, HTTP+JSON or GRPC.
// Prints a line for each scenario that has passed; the first that fails ends the program with an error.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { EventEmitter, on, once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";

// The folder of the part is not above this file.
const { resolve } = createRequire(`${process.env.A2A_PART}/`);
const { Role, StreamResponse, TaskState } = await import(resolve("@a2a-js/sdk"));
const errors = await import(resolve("@a2a-js/sdk/errors"));
const sdk = await import(resolve("@a2a-js/sdk/client"));
const { GrpcTransportFactory } = await import(resolve("@a2a-js/sdk/client/grpc"));

const RECEIPT = "https://allstop.dev/a2a/receipt/v1";
// Far more than an answer takes on a busy machine.
const WAIT_MS = 20_000;

const [binding, ...named] = process.argv.slice(2);
// Address of the scenario that runs.
let url;

function client({ token, ...clientConfig } = {}) {
  const fetchImpl = token === undefined ? undefined : authenticatingFetch(token);
  const transports = [
    new sdk.JsonRpcTransportFactory({ fetchImpl }),
    new sdk.RestTransportFactory({ fetchImpl }),
    new GrpcTransportFactory(),
  ].filter((transport) => transport.protocolName === binding);
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
  // The card names version 1.0 for the binding, and its client is the one of 1.0.
  async negotiation() {
    const { protocolVersion, transport } = await client();
    assert.deepEqual([protocolVersion, transport.protocolName], ["1.0", binding]);
  },

  async send() {
    const a2a = await client();
    const task = await a2a.sendMessage(request("chunks 3; complete"));
    assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
    assert.deepEqual(numbers(task.artifacts), [1, 2, 3]);
    const got = await a2a.getTask({ tenant: "", id: task.id });
    assert.deepEqual(got, task);
    const short = await a2a.getTask({ tenant: "", id: task.id, historyLength: 0 });
    assert.deepEqual([got.history.length, short.history.length], [1, 0]);
  },

  async send_without_waiting() {
    const a2a = await client({ polling: true });
    const gate = randomUUID();
    const task = await a2a.sendMessage(request(`gate ${gate}; complete`));
    const early = [TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING];
    assert.ok(early.includes(task.status.state), task.status.state);
    await openGate(gate);
    const end = Date.now() + WAIT_MS;
    let state = task.status.state;
    while (state !== TaskState.TASK_STATE_COMPLETED) {
      assert.ok(Date.now() < end, `never completed: ${state}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
      state = (await a2a.getTask({ tenant: "", id: task.id })).status.state;
    }
  },

  // Content of every kind comes back as it was sent.
  async parts() {
    const a2a = await client();
    const sent = request("parts; complete");
    const add = ($case, value, fields) =>
      sent.message.parts.push({ ...part($case, value), ...fields });
    const bytes = Buffer.concat(Array(400).fill(Buffer.from(range(255))));
    add("raw", bytes, { mediaType: "image/png", filename: "ü.png" });
    add("url", "https://example.com/a?b=c&d=%20", { mediaType: "text/html" });
    add("data", { a: [1, 2.5, null, true, "ü\n"], b: {} });
    add("text", "é\r\n\u2028\u2029\u0085 ".repeat(10_000), { metadata: { note: "text" } });
    const events = await collect(a2a.sendMessageStream(sent));
    const update = events.find((event) => event.$case === "artifactUpdate");
    const { parts } = sent.message;
    assert.deepEqual(update.value.artifact.parts, parts);
    const got = await a2a.getTask({ tenant: "", id: events[0].value.id });
    assert.deepEqual([got.artifacts[0].parts, got.history[0].parts], [parts, parts]);
  },

  // An agent may answer with a message, and then there is no task.
  async reply() {
    const a2a = await client();
    const message = await a2a.sendMessage(request("reply hello"));
    assert.deepEqual([message.parts[0].content.value, message.taskId], ["hello", ""]);
    const events = await collect(a2a.sendMessageStream(request("reply hello")));
    const { $case, value } = events.at(-1);
    if ($case === "message") {
      assert.deepEqual([events.length, value.taskId], [1, ""]);
      assert.equal(value.parts[0].content.value, "hello");
    } else {
      // A slow machine sends the task first. The reply then ends the task.
      assert.equal(endOf(events), TaskState.TASK_STATE_COMPLETED);
      assert.equal(value.status.message.parts[0].content.value, "hello");
    }
  },

  async stream() {
    const a2a = await client();
    const events = await collect(a2a.sendMessageStream(request("chunks 300; complete")));
    assert.equal(events[0].$case, "task");
    assert.equal(endOf(events), TaskState.TASK_STATE_COMPLETED);
    assert.deepEqual(numbersOf(events), range(300));
    const updates = events.filter((event) => event.$case === "artifactUpdate");
    assert.deepEqual(
      updates.map((event) => event.value.append),
      range(300).map((number) => number > 1),
    );
  },

  async cancel() {
    for (const lastStep of ["gate never", "ignore"]) {
      const a2a = await client();
      const events = [];
      let [task, ended] = [];
      for await (const { payload } of a2a.sendMessageStream(request(`chunks 5; ${lastStep}`))) {
        events.push(payload);
        task ??= payload.value.id;
        if (numbersOf(events).length === 5 && !ended) {
          assert.ok(await isRunning(task));
          const cause = { [RECEIPT]: { cause: { detail: "lunch", by: "javascript" } } };
          ended = await a2a.cancelTask({ tenant: "", id: task, metadata: cause });
          assert.ok(!(await isRunning(task)), "the executor works on");
        }
      }
      assert.equal(ended.status.state, TaskState.TASK_STATE_CANCELED);
      assert.equal(endOf(events), TaskState.TASK_STATE_CANCELED);
      assert.deepEqual(numbersOf(events), range(5));
      const entry = ended.metadata[RECEIPT];
      assert.deepEqual(events.at(-1).value.metadata[RECEIPT], entry);
      assert.equal(entry.receipt.schema, "allstop.receipt/1");
      assert.equal(entry.receipt.quiet, true);
      // Over HTTP+JSON this client sends no body, and so no metadata.
      assert.equal(entry.cause.detail, binding === "HTTP+JSON" ? undefined : "lunch");
      // A second cancel joins the first.
      assert.deepEqual(await a2a.cancelTask({ tenant: "", id: task }), ended);
    }
  },

  // Cut off in mid-stream: the snapshot and the events behind it are the whole history.
  async resubscribe() {
    const [first, last] = [randomUUID(), randomUUID()];
    const text = `chunks 5; gate ${first}; chunks 300; gate ${last}; chunks 5; complete`;
    const connection = new AbortController();
    let a2a = await client();
    let seen = [];
    let task;
    const stream = a2a.sendMessageStream(request(text), { signal: connection.signal });
    for await (const { payload } of stream) {
      seen.push(payload);
      task ??= payload.value.id;
      if (numbersOf(seen).length === 5) break;
    }
    connection.abort();
    assert.ok(await isRunning(task), "a disconnect stopped the task");
    a2a = await client();
    // The agent writes while the client subscribes.
    await openGate(first);
    seen = [];
    for await (const { payload } of a2a.resubscribeTask({ tenant: "", id: task })) {
      seen.push(payload);
      if (numbersOf(seen).at(-1) === 305) await openGate(last);
    }
    assert.equal(seen[0].$case, "task");
    assert.deepEqual(numbersOf(seen), range(310));
    assert.equal(endOf(seen), TaskState.TASK_STATE_COMPLETED);
    await assert.rejects(
      collect(a2a.resubscribeTask({ tenant: "", id: task })),
      errors.UnsupportedOperationError,
    );
  },

  async follow_up() {
    const a2a = await client();
    let events = await collect(a2a.sendMessageStream(request("chunks 1; ask which one?")));
    const { id: taskId, contextId } = events[0].value;
    const { state, message } = events.at(-1).value.status;
    assert.equal(state, TaskState.TASK_STATE_INPUT_REQUIRED);
    assert.equal(message.parts[0].content.value, "which one?");
    const answer = request("chunks 2; complete", { taskId, contextId });
    events = await collect(a2a.sendMessageStream(answer));
    assert.equal(endOf(events), TaskState.TASK_STATE_COMPLETED);
    const got = await a2a.getTask({ tenant: "", id: taskId });
    // A chunk that is not appended begins the artifact anew.
    assert.deepEqual(numbers(got.artifacts), [1, 2]);
    const texts = got.history.map((message) => message.parts[0].content.value);
    assert.ok(texts.includes("chunks 2; complete") && texts.includes("which one?"), texts);
    const late = a2a.sendMessage(request("complete", { taskId }));
    await assert.rejects(late, errors.UnsupportedOperationError);
  },

  async list() {
    const a2a = await client();
    const contextId = randomUUID();
    const ids = [];
    for (const text of [...Array(4).fill("chunks 1; complete"), "ask what?"]) {
      ids.push((await a2a.sendMessage(request(text, { contextId }))).id);
    }
    const listed = [];
    let pageToken = "";
    do {
      const page = await a2a.listTasks(filter({ contextId, pageSize: 2, pageToken }));
      assert.deepEqual([page.totalSize, page.pageSize], [5, 2]);
      listed.push(...page.tasks.map((task) => task.id));
      pageToken = page.nextPageToken;
      assert.ok(listed.length <= 5, "pages without an end");
    } while (pageToken);
    assert.deepEqual(listed, ids.toReversed?.() ?? [...ids].reverse());
    const status = TaskState.TASK_STATE_INPUT_REQUIRED;
    const asked = await a2a.listTasks(filter({ contextId, status }));
    assert.deepEqual(
      asked.tasks.map((task) => task.id),
      ids.slice(4),
    );
    for (const includeArtifacts of [true, false]) {
      const status = TaskState.TASK_STATE_COMPLETED;
      const detail = { includeArtifacts, historyLength: 1 };
      const page = await a2a.listTasks(filter({ contextId, status, ...detail }));
      const lengths = page.tasks.map((task) => [task.artifacts.length, task.history.length]);
      assert.deepEqual(lengths, Array(4).fill([includeArtifacts ? 1 : 0, 1]));
    }
    const statusTimestampAfter = new Date(Date.now() + 3_600_000).toISOString();
    const later = await a2a.listTasks(filter({ contextId, statusTimestampAfter }));
    assert.deepEqual(later.tasks, []);
    await assert.rejects(a2a.listTasks(filter({ pageSize: 1000 })), errors.RequestMalformedError);
  },

  async errors() {
    const a2a = await client();
    const none = { tenant: "", id: "none" };
    for (const call of [
      () => a2a.getTask(none),
      () => a2a.cancelTask({ ...none, metadata: undefined }),
      () => collect(a2a.resubscribeTask(none)),
      () => a2a.sendMessage(request("complete", { taskId: "none" })),
      () => collect(a2a.sendMessageStream(request("complete", { taskId: "none" }))),
    ]) {
      await assert.rejects(call, errors.TaskNotFoundError);
    }
    const events = await collect(a2a.sendMessageStream(request("fail")));
    assert.equal(endOf(events), TaskState.TASK_STATE_FAILED);
    assert.equal(events.at(-1).value.metadata[RECEIPT].error, "as the message says");
    const ended = { tenant: "", id: events[0].value.id, metadata: undefined };
    await assert.rejects(a2a.cancelTask(ended), errors.TaskNotCancelableError);
  },

  // In its mode for version 0.3, the client is served over JSON-RPC, and else learns the reason.
  async legacy() {
    const card = await new sdk.DefaultAgentCardResolver().resolve(url);
    for (const supported of card.supportedInterfaces) supported.protocolVersion = "0.3";
    const legacyCompat = { enabled: true };
    const transports = [
      new sdk.JsonRpcTransportFactory({ legacyCompat }),
      new sdk.RestTransportFactory({ legacyCompat }),
      new GrpcTransportFactory({ legacyCompat }),
    ].filter((transport) => transport.protocolName === binding);
    const a2a = await new sdk.ClientFactory({ transports }).createFromAgentCard(card);
    assert.equal(a2a.protocolVersion, "0.3");
    if (binding === "JSONRPC") {
      const task = await a2a.sendMessage(request("complete"));
      assert.equal(task.status.state, TaskState.TASK_STATE_COMPLETED);
      const events = await collect(a2a.sendMessageStream(request("complete")));
      assert.equal(endOf(events), TaskState.TASK_STATE_COMPLETED);
      return;
    }
    const refused = errors.VersionNotSupportedError;
    await assert.rejects(a2a.sendMessage(request("complete")), refused);
    await assert.rejects(collect(a2a.sendMessageStream(request("complete"))), refused);
  },

  // A webhook gets each event once, in order, with its token.
  async push() {
    const a2a = await client({ polling: true });
    const gate = randomUUID();
    const webhook = await startWebhook();
    const config = (taskId, id) => {
      const token = "our token";
      return { tenant: "", taskId, id, url: webhook.url, token, authentication: undefined };
    };
    const sent = request(`gate ${gate}; chunks 3; complete`);
    sent.configuration = {
      acceptedOutputModes: [],
      taskPushNotificationConfig: config("", "first"),
      returnImmediately: true,
    };
    const { id: taskId } = await a2a.sendMessage(sent);
    const got = await a2a.getTaskPushNotificationConfig({ tenant: "", taskId, id: "first" });
    assert.deepEqual([got.url, got.token], [webhook.url, "our token"]);
    await a2a.createTaskPushNotificationConfig(config(taskId, "second"));
    const ids = async () => {
      const every = { tenant: "", taskId, pageSize: 0, pageToken: "" };
      const { configs } = await a2a.listTaskPushNotificationConfig(every);
      return configs.map((config) => config.id).sort();
    };
    assert.deepEqual(await ids(), ["first", "second"]);
    await a2a.deleteTaskPushNotificationConfig({ tenant: "", taskId, id: "second" });
    assert.deepEqual(await ids(), ["first"]);
    await openGate(gate);
    const events = [];
    for await (const [{ headers }, body] of webhook.requests) {
      assert.equal(headers["x-a2a-notification-token"], "our token");
      events.push(StreamResponse.fromJSON(JSON.parse(body)).payload);
      const { $case, value } = events.at(-1);
      if ($case === "statusUpdate" && value.status.state === TaskState.TASK_STATE_COMPLETED) break;
    }
    assert.deepEqual(numbersOf(events), [1, 2, 3]);
    webhook.server.close();
  },

  // The agent of `allstop serve --agent echo`.
  async echo() {
    const a2a = await client();
    const events = await collect(a2a.sendMessageStream(request("hello")));
    assert.deepEqual(
      events.map((event) => event.$case),
      ["task", "statusUpdate", "artifactUpdate", "statusUpdate"],
    );
    assert.equal(events[2].value.artifact.parts[0].content.value, "hello");
    const { tasks } = await a2a.listTasks(filter({ includeArtifacts: true }));
    assert.ok(tasks.some((task) => task.id === events[0].value.id));
    const task = await a2a.sendMessage(request("hello again"));
    assert.equal(task.artifacts[0].parts[0].content.value, "hello again");
  },

  async token() {
    const [right, wrong] = JSON.parse(readFileSync(0, "utf8"));
    for (const token of [right, wrong, null]) {
      const a2a = await client({ token });
      // gRPC has no `fetch`: its metadata come with each call.
      const serviceParameters = binding === "GRPC" && token ? { authorization: `Bearer ${token}` } : {};
      const options = { serviceParameters };
      const sent = collect(a2a.sendMessageStream(request("hello"), options));
      if (token === right) {
        assert.equal(endOf(await sent), TaskState.TASK_STATE_COMPLETED);
        continue;
      }
      const unauthenticated = /401|UNAUTHENTICATED|authentication/;
      await assert.rejects(sent, unauthenticated);
      await assert.rejects(a2a.listTasks(filter({}), options), unauthenticated);
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

function part($case, value) {
  return { content: { $case, value }, metadata: undefined, filename: "", mediaType: "" };
}

function request(text, ids = {}) {
  const message = {
    messageId: randomUUID(),
    contextId: "",
    taskId: "",
    role: Role.ROLE_USER,
    parts: [part("text", text)],
    metadata: undefined,
    extensions: [],
    referenceTaskIds: [],
    ...ids,
  };
  return { tenant: "", message, configuration: undefined, metadata: undefined };
}

function filter(fields) {
  const status = TaskState.TASK_STATE_UNSPECIFIED;
  return { tenant: "", contextId: "", status, pageToken: "", statusTimestampAfter: undefined, ...fields };
}

const range = (length) => Array.from({ length }, (_, index) => index + 1);

const endOf = (events) => events.at(-1).value.status.state;

const numbers = (artifacts) =>
  artifacts.flatMap((artifact) => artifact.parts.map((part) => Number(part.content.value)));

// Numbers of the snapshots and of the chunks, as a client adds them up.
function numbersOf(events) {
  return events.flatMap(({ $case, value }) => {
    if ($case === "task") return numbers(value.artifacts);
    return $case === "artifactUpdate" ? numbers([value.artifact]) : [];
  });
}

async function collect(stream) {
  const events = [];
  for await (const { payload } of stream) events.push(payload);
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
