// Serves the recorded conversations of the SDKs' tests as a model. Compares the words of the users and the names of the
// called tools, and ignores the rest of a request: system messages, tool definitions, results of tools.
//
// The tests start this program in place of their own model server. Arguments: the path of that server, next to which the
// package `yaml` is installed, and a file with certificates. Control requests: POST /config, POST /stop, POST /copilot-user-config, GET /exchanges,
// GET /requests.

import { readFileSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";

const CHUNK_LEN = 200;
// A request may arrive before the configuration of its test.
const DEFAULT_MODEL = "claude-sonnet-4.5";
const TOOL_NAMES = { "${shell}": "bash", "${read_shell}": "read_bash", "${write_shell}": "write_bash" };

const yaml = createRequire(process.argv[2])("yaml");
const users = new Map();
let workDir = "";
let recording = { models: [], conversations: [], errors: [] };
let requests = [];

function loadRecording(path) {
  let text;
  try {
    text = readFileSync(path, "utf8");
  } catch {
    return { models: [], conversations: [], errors: [] };
  }
  const parsed = yaml.parse(text) ?? {};
  const conversations = (parsed.conversations ?? []).map((all) => turnsOf(all.messages));
  const errors = (parsed.errors ?? []).map((error) => ({ ...error, turns: turnsOf(error.messages) }));
  return { models: parsed.models ?? [], conversations, errors };
}

function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((part) => part.text ?? "").join("\n");
}

// Groups adjacent messages of a role, without system messages. The official runtime adds the text of a loaded skill as a
// message of the user, which Allstop returns as the result of the tool.
function turnsOf(messages) {
  const turns = [];
  for (const message of messages ?? []) {
    if (message.role === "system" || message.role === "developer") continue;
    if (message.role === "user" && textOf(message.content).startsWith("<skill-context")) continue;
    let turn = turns.at(-1);
    if (turn?.role !== message.role) {
      turn = { role: message.role, texts: [], calls: [] };
      turns.push(turn);
    }
    turn.texts.push(textOf(message.content));
    turn.calls.push(...(message.tool_calls ?? []));
  }
  return turns;
}

function words(turn) {
  return turn.texts.join("\n").replace(/<([a-z_]+)>[^]*?<\/\1>/g, "").replace(/\s+/g, " ").trim();
}

// The official runtime separates the names of an MCP server and of its tool by `-`.
function plainName(name) {
  return name?.replace("__", "-");
}

function callNames(turn) {
  return turn.calls.map((call) => TOOL_NAMES[call.function?.name] ?? plainName(call.function?.name)).join(" ");
}

// Returns the name of a recorded tool among the offered tools.
function offeredName(recorded, tools) {
  const name = TOOL_NAMES[recorded] ?? recorded;
  return tools.map((tool) => tool.function?.name).find((offered) => plainName(offered) === name) ?? name;
}

// Resemblance of two turns of one role, from 0 to 2.
function resemblance(asked, recorded) {
  if (asked.role === "tool") return 1;
  if (asked.role === "assistant") return callNames(asked) === callNames(recorded) ? 1 : 0;
  const [a, b] = [words(asked), inWorkDir(words(recorded), false)];
  if (a === b) return 2;
  if (a.length === 0 || b.length === 0) return 0;
  // After a stop, the request has a note between two messages of the user. The recording with both messages is nearer.
  const messages = recorded.texts.map((text) => inWorkDir(words({ texts: [text] }), false));
  if (messages.every((message) => a.includes(message))) return 1 + messages.join("").length / (a.length + 1);
  return b.includes(a) ? 1 : 0;
}

function scoreOf(asked, recorded) {
  let score = 0;
  for (const [index, turn] of asked.entries()) {
    if (recorded[index]?.role !== turn.role) return -1;
    score += resemblance(turn, recorded[index]);
  }
  return score;
}

// Returns the turn that follows the longest suffix of the request in any conversation.
function answerAfterSuffix(asked) {
  for (let from = 0; from < asked.length; from += 1) {
    const rest = asked.slice(from);
    for (const turns of recording.conversations) {
      for (let at = 0; at + rest.length < turns.length; at += 1) {
        const part = turns.slice(at, at + rest.length);
        const same = rest.every((turn, index) => turn.role === part[index].role && resemblance(turn, part[index]) > 0);
        if (same && turns[at + rest.length].role === "assistant") return turns[at + rest.length];
      }
    }
  }
  return undefined;
}

// Returns the recorded answer, "none" for a recorded request without an answer, or undefined.
function findAnswer(asked) {
  let best;
  let isUnanswered = false;
  for (const turns of recording.conversations) {
    const score = scoreOf(asked, turns);
    if (score < 0) continue;
    if (turns.length === asked.length) isUnanswered = true;
    const answer = turns[asked.length];
    if (answer?.role === "assistant" && (best === undefined || score > best.score)) best = { score, answer };
  }
  return best?.answer ?? (isUnanswered ? "none" : answerAfterSuffix(asked));
}

function inWorkDir(text, isJson) {
  const path = isJson ? JSON.stringify(workDir).slice(1, -1) : workDir;
  return text.replaceAll("${workdir}", path);
}

function messageOf(turn, tools) {
  const calls = turn.calls.map((call, index) => ({
    id: call.id || `call_${index}`,
    type: "function",
    function: {
      name: offeredName(call.function.name, tools),
      arguments: inWorkDir(call.function.arguments ?? "{}", true),
    },
  }));
  const content = inWorkDir(turn.texts.filter((text) => text).join("\n"), false);
  return { role: "assistant", content: content || null, ...(calls.length > 0 && { tool_calls: calls }) };
}

function piecesOf(text) {
  const pieces = [];
  for (let at = 0; at < text.length; at += CHUNK_LEN) pieces.push(text.slice(at, at + CHUNK_LEN));
  return pieces;
}

function deltasOf(message) {
  const deltas = piecesOf(message.content ?? "").map((content) => ({ role: "assistant", content }));
  for (const [index, call] of (message.tool_calls ?? []).entries()) {
    for (const [part, text] of piecesOf(call.function.arguments).entries()) {
      const name = part === 0 ? { name: call.function.name } : {};
      const piece = { index, id: call.id, type: "function", function: { ...name, arguments: text } };
      deltas.push({ role: "assistant", tool_calls: [piece] });
    }
  }
  return deltas.length > 0 ? deltas : [{ role: "assistant" }];
}

function sendJson(response, status, value, headers = {}) {
  response.writeHead(status, { "content-type": "application/json", "x-github-request-id": "recorded", ...headers });
  response.end(JSON.stringify(value));
}

function complete(response, body, exchange) {
  const request = JSON.parse(body);
  const asked = turnsOf(request.messages);
  const failure = recording.errors.find(
    (error) => (!error.model || error.model === request.model) && error.turns.length === asked.length && scoreOf(asked, error.turns) >= 0,
  );
  if (failure) {
    const headers = failure.retryAfterSeconds === undefined ? {} : { "retry-after": String(failure.retryAfterSeconds) };
    const error = { message: failure.message ?? "recorded error", code: failure.code ?? "rate_limited" };
    return sendJson(response, failure.status, { error }, headers);
  }
  const answer = findAnswer(asked);
  if (answer === undefined) {
    const roles = asked.map((turn) => `${turn.role}: ${words(turn).slice(0, 60)} ${callNames(turn)}`);
    console.error(`recorded model: no answer for ${JSON.stringify(roles)}`);
    return sendJson(response, 404, { error: { message: "the recording has no answer to this request" } });
  }
  if (answer === "none") {
    // The test waits for its own timeout.
    response.writeHead(200, { "content-type": request.stream ? "text/event-stream" : "application/json" });
    return response.flushHeaders();
  }
  const message = messageOf(answer, request.tools ?? []);
  const reason = message.tool_calls ? "tool_calls" : "stop";
  const usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
  const base = { id: "recorded", created: Math.floor(Date.now() / 1000), model: request.model };
  const whole = {
    ...base,
    object: "chat.completion",
    choices: [{ index: 0, message, finish_reason: reason, logprobs: null }],
    usage,
  };
  exchange.response = whole;
  if (!request.stream) return sendJson(response, 200, whole);
  response.writeHead(200, { "content-type": "text/event-stream", "x-github-request-id": "recorded" });
  const deltas = deltasOf(message);
  for (const [index, delta] of deltas.entries()) {
    const finish_reason = index + 1 === deltas.length ? reason : null;
    const chunk = { ...base, object: "chat.completion.chunk", choices: [{ index: 0, delta, finish_reason }] };
    response.write(`data: ${JSON.stringify(chunk)}\n\n`);
  }
  response.write(`data: ${JSON.stringify({ ...base, object: "chat.completion.chunk", choices: [], usage })}\n\n`);
  response.end("data: [DONE]\n\n");
}

function modelInfo(id) {
  const limits = { max_context_window_tokens: 128000 };
  return { id, name: id, object: "model", capabilities: { supports: { vision: true }, limits } };
}

function handle(request, response, body) {
  const path = request.url.split("?")[0].replace(/^\/v1\//, "/");
  const at = `${request.method} ${path}`;
  if (at === "POST /config") {
    const config = JSON.parse(body);
    workDir = config.workDir;
    recording = loadRecording(config.filePath);
    requests = [];
    return sendJson(response, 200, {});
  }
  if (at === "POST /copilot-user-config") {
    const { token, response: user } = JSON.parse(body);
    users.set(token, { is_mcp_enabled: true, ...user });
    return sendJson(response, 200, {});
  }
  if (at === "POST /stop") {
    response.on("finish", () => process.exit(0));
    return sendJson(response, 200, {});
  }
  if (at === "GET /exchanges") {
    const models = requests.filter((known) => known.url === "/chat/completions");
    const exchanges = models.map((known) => ({
      request: JSON.parse(known.body),
      response: known.response,
      requestHeaders: known.headers,
    }));
    return sendJson(response, 200, exchanges);
  }
  if (at === "GET /requests") return sendJson(response, 200, requests.map(({ response: _, ...known }) => known));
  const exchange = { method: request.method, url: path, headers: request.headers, body };
  requests.push(exchange);
  if (path === "/copilot_internal/user") {
    const user = users.get((request.headers.authorization ?? "").replace("Bearer ", ""));
    return user ? sendJson(response, 200, user) : sendJson(response, 401, { message: "Bad credentials" });
  }
  if (path === "/models") {
    const models = recording.models.length > 0 ? recording.models : [DEFAULT_MODEL];
    return sendJson(response, 200, { data: models.map(modelInfo) });
  }
  if (at === "POST /chat/completions") return complete(response, body, exchange);
  return sendJson(response, 404, { error: { message: "not found" } });
}

const server = http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    try {
      handle(request, response, Buffer.concat(parts).toString());
    } catch (error) {
      console.error(`recorded model: ${error.stack}`);
      sendJson(response, 500, { error: { message: String(error) } });
    }
  });
});

// Ends together with the tests, even if they are killed.
const parent = process.ppid;
setInterval(() => process.ppid === parent || process.exit(0), 1000).unref();

server.listen(0, "127.0.0.1", () => {
  const url = `http://127.0.0.1:${server.address().port}`;
  // Requests to other hosts through this proxy are refused.
  const proxy = { connectProxyUrl: url, caFilePath: process.argv[3] };
  console.log(`Listening: ${url} ${JSON.stringify(proxy)}`);
});
