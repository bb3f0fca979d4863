// Parts of all scenarios: clients, a session whose events are kept, tools with an account of their calls.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";

// The folder of the part is not above this file.
const sdk = `${process.env.COPILOT_PART}/node_modules/@github/copilot-sdk/dist/index.js`;
const { CopilotClient, RuntimeConnection, approveAll, defineTool } = await import(sdk);
export { approveAll };

const split = process.argv.indexOf("--");
export const names = process.argv.slice(split + 1);
const args = process.argv.slice(2, split);
// Far more than anything takes on a busy machine.
export const SOON_MS = 15_000;

export function client() {
  return new CopilotClient(args.length === 0 ? {} : { connection: RuntimeConnection.forStdio({ args }) });
}

export function longShellRuns() {
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

export async function until(what, condition) {
  const end = Date.now() + SOON_MS;
  while (!condition()) {
    assert.ok(Date.now() < end, `never seen: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

// Tools of this client, with an account of their calls.
export class Handlers {
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
export class Watched {
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

export async function stopped(server) {
  assert.deepEqual(await server.stop(), []);
}

export async function withSession(config, run) {
  const server = client();
  await server.start();
  const watched = new Watched();
  const onEvent = (event) => watched.events.push(event);
  watched.session = await server.createSession({ onPermissionRequest: approveAll, onEvent, ...config });
  await run(watched, server);
  await stopped(server);
}
