// Messages, permissions, hooks and the life of a session.

import assert from "node:assert/strict";

import { Handlers, SOON_MS, approveAll, client, stopped, withSession } from "./support.mjs";

export default {
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

  async permission_approved() {
    await withSession({}, async (watched) => {
      await watched.send("touch a file");
      const [call] = watched.of("tool.execution_complete");
      assert.equal(call.success, true);
      const [answer] = watched.of("permission.completed");
      assert.equal(answer.result.kind, "approved");
    });
  },
};
