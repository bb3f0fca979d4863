// Stops, background work, and the end of clients and servers.

import assert from "node:assert/strict";

import { Handlers, SOON_MS, approveAll, client, longShellRuns, stopped, until, withSession } from "./support.mjs";

export default {
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

  async background_agent() {
    await withSession({}, async (watched) => {
      const answer = await watched.send("start an agent");
      assert.equal(answer.data.content, "Started an agent.");
      const tasks = await watched.session.rpc.tasks.list();
      assert.deepEqual(tasks.tasks.map((task) => [task.type, task.status]), [["agent", "completed"]]);
    });
  },

  async stuck_background() {
    await withSession({}, async (watched) => {
      await assert.rejects(watched.session.sendAndWait("start a long shell", 700), /Timeout/);
      assert.ok(longShellRuns());
      // An abort without a turn ends what the session waits for, and says so.
      await watched.session.abort();
      assert.ok(!longShellRuns(), "the shell runs behind the answer");
      await watched.until("session.idle");
    });
  },

  async stalled_hook() {
    let begun = false;
    const onPreToolUse = () => {
      begun = true;
      return new Promise(() => {});
    };
    await withSession({ tools: new Handlers().tools(), hooks: { onPreToolUse } }, async (watched) => {
      await watched.session.send("echo three");
      await until("the hook", () => begun);
      await watched.session.abort();
      await watched.until("session.idle");
      assert.equal((await watched.send("hello again")).data.content, "Hello again.");
    });
  },

  async server_killed() {
    const handlers = new Handlers();
    const first = client();
    await first.start();
    const session = await first.createSession({ onPermissionRequest: approveAll, tools: handlers.tools() });
    await session.sendAndWait("hello", SOON_MS);
    await session.send("wait for one");
    await handlers.startedAll(1);
    const killed = new Promise((resolve) => first.cliProcess.once("exit", resolve));
    first.cliProcess.kill("SIGKILL");
    await killed;
    await first.forceStop();
    const second = client();
    await second.start();
    const again = await second.resumeSession(session.sessionId, { onPermissionRequest: approveAll });
    assert.equal((await again.sendAndWait("hello again", SOON_MS)).data.content, "Hello again.");
    await stopped(second);
  },
};
