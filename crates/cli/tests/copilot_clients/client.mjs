// Scenarios with the official Copilot SDK for JavaScript, unmodified.
//
// Usage: client.mjs [ARGUMENT...] -- SCENARIO...
// The SDK starts the program that COPILOT_CLI_PATH names, with these arguments before its own. The model follows
// `script.yaml` beside this file, in which LONG_SLEEP stands for the command in the environment variable of this name.
// Prints a line for each scenario that has passed; the first that fails ends the program with an error.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";

// The folder of the part is not above this file.
const sdk = `${process.env.COPILOT_PART}/node_modules/@github/copilot-sdk/dist/index.js`;
const { CopilotClient, RuntimeConnection, approveAll, defineTool } = await import(sdk);

const split = process.argv.indexOf("--");
const [args, names] = [process.argv.slice(2, split), process.argv.slice(split + 1)];
// Far more than anything takes on a busy machine.
const SOON_MS = 15_000;
const SCENARIO_MS = 40_000;

function client() {
  return new CopilotClient(args.length === 0 ? {} : { connection: RuntimeConnection.forStdio({ args }) });
}

function longShellRuns() {
  return readdirSync("/proc").some((name) => {
    if (!/^\d+$/.test(name)) return false;
    try {
      const command = readFileSync(`/proc/${name}/cmdline`, "latin1");
      return command.replaceAll("\0", " ").trim() === process.env.LONG_SLEEP;
    } catch {
      return false;
    }
  });
}

async function until(what, condition) {
  const end = Date.now() + SOON_MS;
  while (!condition()) {
    assert.ok(Date.now() < end, `never seen: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

// Tools of this client, with an account of their calls.
class Handlers {
  started = new Map();
  cancelledAt = new Map();
  #release;
  #released = new Promise((resolve) => (this.#release = resolve));

  release() {
    this.#release();
  }

  tools() {
    const wait = async ({ name = "one" }, { toolCallId, signal }) => {
      const cancelled = new Promise((resolve) => {
        const note = () => {
          this.cancelledAt.set(name, performance.now());
          resolve("cancelled");
        };
        signal.addEventListener("abort", note, { once: true });
        // The SDK aborts the signal of a completed call as well.
        this.#released.then(() => signal.removeEventListener("abort", note));
      });
      this.started.set(name, toolCallId);
      return Promise.race([cancelled, this.#released.then(() => `released ${name}`)]);
    };
    const name = { type: "object", properties: { name: { type: "string" } } };
    const text = { type: "object", properties: { text: { type: "string" } }, required: ["text"] };
    return [
      defineTool("wait", { description: "Waits until it is released.", parameters: name, handler: wait }),
      defineTool("echo", {
        description: "Returns its text.",
        parameters: text,
        handler: ({ text }) => `echo ${text}`,
      }),
    ];
  }

  startedAll(count) {
    return until(`${count} started calls`, () => this.started.size >= count);
  }
}

// A session whose events are kept.
class Watched {
  events = [];

  of(type) {
    return this.events.filter((event) => event.type === type).map((event) => event.data);
  }

  until(type) {
    return until(type, () => this.of(type).length > 0);
  }

  // Checks that the first events of these types have this order.
  before(...types) {
    const all = this.events.map((event) => event.type);
    const places = types.map((type) => all.indexOf(type));
    assert.ok(!places.includes(-1), `${types} in ${all}`);
    assert.deepEqual(places, places.toSorted((one, other) => one - other), `${types} in ${all}`);
  }

  send(prompt) {
    return this.session.sendAndWait(prompt, SOON_MS);
  }
}

async function stopped(server) {
  assert.deepEqual(await server.stop(), []);
}

async function withSession(config, run) {
  const server = client();
  await server.start();
  const watched = new Watched();
  const onEvent = (event) => watched.events.push(event);
  watched.session = await server.createSession({ onPermissionRequest: approveAll, onEvent, ...config });
  await run(watched, server);
  await stopped(server);
}

const scenarios = {
  async send() {
    await withSession({}, async (watched) => {
      const answer = await watched.send("hello");
      assert.equal(answer.data.content, "Hello.");
      const events = await watched.session.getEvents();
      const last = events.slice(-4).map((event) => event.type);
      const turn = ["assistant.turn_start", "assistant.message", "assistant.turn_end"];
      assert.deepEqual(last, ["user.message", ...turn]);
      watched.before("session.start", "user.message", "assistant.turn_start", "assistant.message", "session.idle");
    });
  },

  async stream() {
    await withSession({ streaming: true }, async (watched) => {
      const answer = await watched.send("hello");
      const pieces = watched.of("assistant.message_delta").map((data) => data.deltaContent);
      assert.equal(pieces.join(""), answer.data.content);
    });
  },

  async three_tools() {
    await withSession({ tools: new Handlers().tools() }, async (watched) => {
      const answer = await watched.send("echo three");
      assert.equal(answer.data.content, "All echoed.");
      const contents = watched.of("tool.execution_complete").map((data) => data.result.content);
      assert.deepEqual(contents.toSorted(), ["echo a", "echo b", "echo c"]);
      watched.before(
        "assistant.message",
        "tool.execution_start",
        "external_tool.requested",
        "external_tool.completed",
        "tool.execution_complete",
        "assistant.turn_end",
        "assistant.idle",
        "session.idle",
      );
    });
  },

  async abort() {
    const handlers = new Handlers();
    await withSession({ tools: handlers.tools() }, async (watched) => {
      await watched.session.send("wait for one");
      await handlers.startedAll(1);
      const begin = performance.now();
      await watched.session.abort();
      await until("the signal of the handler", () => handlers.cancelledAt.has("one"));
      const took = handlers.cancelledAt.get("one") - begin;
      assert.ok(took < 500, `the handler heard of the abort after ${took} ms`);
      await watched.until("session.idle");
      watched.before("abort", "external_tool.completed", "assistant.turn_end", "assistant.idle", "session.idle");
      watched.before("abort", "tool.execution_complete", "assistant.idle");
      assert.equal(watched.of("session.idle").at(-1).aborted, true);
      const answer = await watched.send("hello again");
      assert.equal(answer.data.content, "Hello again.");
    });
  },

  async cancel_one_of_three() {
    const handlers = new Handlers();
    await withSession({ tools: handlers.tools() }, async (watched, server) => {
      const waiting = watched.send("wait for three");
      await handlers.startedAll(3);
      const call = handlers.started.get("b");
      const { sessionId } = watched.session;
      const cancel = (toolCallId) =>
        server.connection.sendRequest("allstop.cancelToolCall", { sessionId, toolCallId });
      const first = await cancel(call);
      assert.equal(first.cancelled, true);
      assert.deepEqual(first.receipt.items.map((item) => item.id), [call]);
      await until("the signal of its handler", () => handlers.cancelledAt.has("b"));
      assert.equal((await cancel(call)).cancelled, false);
      assert.equal((await cancel("call_that_never_was")).cancelled, false);
      assert.deepEqual([...handlers.cancelledAt.keys()], ["b"]);
      handlers.release();
      assert.equal((await waiting).data.content, "Waited.");
    });
  },

  async background_shell() {
    await withSession({}, async (watched) => {
      const begin = performance.now();
      const answer = await watched.send("start a shell");
      assert.ok(performance.now() - begin >= 1000, "the wait ended before the background shell");
      assert.equal(answer.data.content, "Started.");
    });
  },

  async permission() {
    const asked = [];
    const onPermissionRequest = (request) => {
      asked.push(request.kind);
      return { kind: "reject", feedback: "not here" };
    };
    await withSession({ onPermissionRequest }, async (watched) => {
      await watched.send("touch a file");
      assert.deepEqual(asked, ["shell"]);
      const [call, ...others] = watched.of("tool.execution_complete");
      assert.deepEqual([call.success, call.error.code, others.length], [false, "denied", 0]);
      watched.before("permission.requested", "permission.completed", "tool.execution_complete");
      const [answer] = watched.of("permission.completed");
      assert.equal(answer.result.kind, "denied-interactively-by-user");
    });
  },

  async hooks() {
    const seen = [];
    const hooks = {
      onPreToolUse({ toolArgs }) {
        seen.push("pre");
        return toolArgs.text === "b"
          ? { permissionDecision: "deny", permissionDecisionReason: "not b" }
          : { permissionDecision: "allow" };
      },
      onPostToolUse() {
        seen.push("post");
      },
    };
    await withSession({ tools: new Handlers().tools(), hooks }, async (watched) => {
      await watched.send("echo three");
      const calls = watched.of("tool.execution_complete");
      const denied = calls.filter((call) => !call.success).map((call) => call.error.message);
      assert.deepEqual([calls.length, denied], [3, ["the call did not run: not b"]]);
      const count = (kind) => seen.filter((one) => one === kind).length;
      assert.deepEqual([count("pre"), count("post")], [3, 2]);
    });
  },

  async resume_and_delete() {
    const first = client();
    await first.start();
    const session = await first.createSession({ onPermissionRequest: approveAll });
    await session.sendAndWait("hello", SOON_MS);
    const { sessionId } = session;
    await stopped(first);
    const second = client();
    await second.start();
    const ids = async () => (await second.listSessions()).map((entry) => entry.sessionId);
    assert.ok((await ids()).includes(sessionId));
    const again = await second.resumeSession(sessionId, { onPermissionRequest: approveAll });
    const answer = await again.sendAndWait("hello again", SOON_MS);
    assert.equal(answer.data.content, "Hello again.");
    const events = await again.getEvents();
    assert.equal(events.filter((event) => event.type === "user.message").length, 2);
    await second.deleteSession(sessionId);
    assert.ok(!(await ids()).includes(sessionId));
    await stopped(second);
  },

  // The end of the client ends its calls and its shells, at once.
  async stop() {
    const handlers = new Handlers();
    let begin;
    await withSession({ tools: handlers.tools() }, async (watched) => {
      await watched.session.send("start a long shell");
      await watched.until("assistant.idle");
      await until("the shell", longShellRuns);
      await watched.session.send("wait for one");
      await handlers.startedAll(1);
      begin = performance.now();
    });
    const took = performance.now() - begin;
    assert.ok(took < 900, `the stop took ${took} ms`);
    assert.ok(handlers.cancelledAt.has("one"), "the handler still waits");
    assert.ok(!longShellRuns(), "the shell still runs");
  },
};

for (const name of names) {
  const limit = setTimeout(() => {
    console.error(`${name} takes longer than ${SCENARIO_MS} ms`);
    process.exit(1);
  }, SCENARIO_MS);
  await scenarios[name]();
  clearTimeout(limit);
  console.log(`passed ${name}`);
}
// Connections that are kept alive.
process.exit(0);
