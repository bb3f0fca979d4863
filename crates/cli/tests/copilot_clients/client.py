"""Scenarios with the official Copilot SDK for Python, unmodified.

usage: client.py [ARGUMENT...] -- SCENARIO...

The SDK starts the program that COPILOT_CLI_PATH names, with these arguments before its own. The model follows
`script.yaml` beside this file, in which LONG_SLEEP stands for the command in the environment variable of this name.
Prints a line for each scenario that passed.
"""

import asyncio
import os
import pathlib
import sys
import time

from copilot import CopilotClient, RuntimeConnection
from copilot.rpc import PermissionDecisionReject
from copilot.session import PermissionHandler
from copilot.tools import Tool, ToolResult

SPLIT = sys.argv.index("--")
ARGUMENTS, SCENARIOS = sys.argv[1:SPLIT], sys.argv[SPLIT + 1 :]
# A command that no other process has.
LONG_SLEEP = os.environ.get("LONG_SLEEP", "")
# Far more than anything takes on a busy machine.
SOON = 15


def client():
    if not ARGUMENTS:
        return CopilotClient()
    return CopilotClient(connection=RuntimeConnection.for_stdio(args=ARGUMENTS))


def long_shell_runs():
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if command.replace(b"\0", b" ").strip() == LONG_SLEEP.encode():
                return True
    return False


class Handlers:
    """Tools of this client, with an account of their calls."""

    def __init__(self):
        self.started, self.cancelled, self.released = {}, {}, asyncio.Event()
        self.some_started = asyncio.Event()

    async def wait(self, invocation):
        name = (invocation.arguments or {}).get("name", "one")
        self.started[name] = invocation.tool_call_id
        self.some_started.set()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled[name] = time.monotonic()
            raise
        return ToolResult(text_result_for_llm=f"released {name}")

    async def echo(self, invocation):
        return ToolResult(text_result_for_llm=f"echo {invocation.arguments['text']}")

    def tools(self):
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        return [
            Tool("wait", "Waits until it is released.", self.wait, parameters=schema),
            Tool("echo", "Returns its text.", self.echo, parameters=text),
        ]

    async def started_all(self, count):
        async with asyncio.timeout(SOON):
            while len(self.started) < count:
                self.some_started.clear()
                await self.some_started.wait()


async def until(what, condition):
    async with asyncio.timeout(SOON):
        while not condition():
            await asyncio.sleep(0.01)


class Watched:
    """A session whose events are kept."""

    def __init__(self):
        self.session, self.events, self.new = None, [], asyncio.Event()

    def heard(self, event):
        self.events.append(event)
        self.new.set()

    def types(self):
        return [str(getattr(event, "raw_type", None) or event.type.value) for event in self.events]

    async def until(self, kind, count=1):
        async with asyncio.timeout(SOON):
            while self.types().count(kind) < count:
                self.new.clear()
                await self.new.wait()

    async def ask(self, prompt):
        """Sends the first message and waits for its answer, which comes behind the events of its turn, and for the end."""
        answer = await self.session.send_and_wait(prompt, timeout=SOON)
        last = [kind for kind in self.types() if kind.startswith(("assistant.turn", "tool."))][-1]
        assert last == "assistant.turn_end", self.types()
        assert abs(answer.timestamp.timestamp() - time.time()) < 60, answer.timestamp
        await self.until("session.idle")
        return answer

    def before(self, *kinds):
        """Checks that the first events of these types have this order."""
        places = [self.types().index(kind) for kind in kinds]
        assert places == sorted(places), list(zip(kinds, places))


async def with_session(run, **options):
    server = client()
    await server.start()
    try:
        options.setdefault("on_permission_request", PermissionHandler.approve_all)
        watched = Watched()
        watched.session = await server.create_session(on_event=watched.heard, **options)
        await run(server, watched)
    finally:
        await server.stop()


async def send(server, watched):
    answer = await watched.ask("hello")
    assert answer.data.content == "Hello.", answer
    events = await watched.session.get_events()
    assert [event.type.value for event in events][-2:] == ["user.message", "assistant.message"], events
    watched.before("session.start", "user.message", "assistant.turn_start", "assistant.message", "session.idle")


async def stream(server, watched):
    answer = await watched.ask("hello")
    pieces = [event.data.delta_content for event in watched.events if event.type.value == "assistant.message_delta"]
    assert "".join(pieces) == answer.data.content, pieces


async def three_tools(server, watched):
    answer = await watched.ask("echo three")
    assert answer.data.content == "All echoed.", answer
    done = [event.data for event in watched.events if event.type.value == "tool.execution_complete"]
    assert sorted(data.result.content for data in done) == ["echo a", "echo b", "echo c"], done
    watched.before(
        "assistant.message",
        "tool.execution_start",
        "external_tool.requested",
        "external_tool.completed",
        "tool.execution_complete",
        "assistant.turn_end",
        "assistant.idle",
        "session.idle",
    )


async def abort(server, watched, handlers):
    await watched.session.send("wait for one")
    await handlers.started_all(1)
    begun = time.monotonic()
    await watched.session.abort()
    await until("the handler is cancelled", lambda: handlers.cancelled)
    assert handlers.cancelled["one"] - begun < 0.5, handlers.cancelled["one"] - begun
    await watched.until("session.idle")
    watched.before(
        "abort", "external_tool.completed", "assistant.turn_end", "assistant.idle", "session.idle"
    )
    watched.before("abort", "tool.execution_complete", "assistant.idle")
    idle = [event for event in watched.events if event.type.value == "session.idle"][-1]
    assert idle.data.aborted is True, idle
    answer = await watched.session.send_and_wait("hello again", timeout=SOON)
    assert answer.data.content == "Hello again.", answer


async def aborted_wait(server, watched, handlers):
    waiting = asyncio.create_task(watched.session.send_and_wait("wait for one", timeout=SOON))
    await handlers.started_all(1)
    await watched.session.abort()
    try:
        await waiting
    except RuntimeError as error:
        assert "abort" in str(error).lower(), error
    else:
        raise AssertionError("an aborted wait looks like a completed one")


async def cancel_one_of_three(server, watched, handlers):
    waiting = asyncio.create_task(watched.session.send_and_wait("wait for three", timeout=SOON))
    await handlers.started_all(3)
    call = handlers.started["b"]
    session = watched.session.session_id

    async def cancel(which):
        params = {"sessionId": session, "toolCallId": which}
        return await server._client.request("allstop.cancelToolCall", params)

    first = await cancel(call)
    assert first["cancelled"] is True, first
    items = first["receipt"]["items"]
    assert [item["id"] for item in items] == [call], items
    await until("its handler is cancelled", lambda: "b" in handlers.cancelled)
    second = await cancel(call)
    assert second["cancelled"] is False, second
    assert (await cancel("call_that_never_was"))["cancelled"] is False
    assert list(handlers.cancelled) == ["b"], handlers.cancelled
    handlers.released.set()
    answer = await waiting
    assert answer.data.content == "Waited.", answer


async def background_shell(server, watched):
    begun = time.monotonic()
    answer = await watched.session.send_and_wait("start a shell", timeout=SOON)
    assert time.monotonic() - begun >= 1, "the wait ended before the background shell"
    assert answer.data.content == "Started.", answer


async def stuck_background(server, watched):
    begun = time.monotonic()
    try:
        await watched.session.send_and_wait("start a long shell", timeout=1)
    except asyncio.TimeoutError:
        assert time.monotonic() - begun < 5
    else:
        raise AssertionError("the wait ended although the shell runs")
    tasks = await watched.session.rpc.tasks.list()
    assert [(task.type, task.status.value) for task in tasks.tasks] == [("shell", "running")], tasks
    assert long_shell_runs()
    # An abort without a turn ends what the session waits for, and says so.
    await watched.session.abort()
    await until("the shell is gone", lambda: not long_shell_runs())
    await watched.until("session.idle")


async def abort_leaves_background(server, watched, handlers):
    await watched.session.send("start a long shell")
    await watched.until("assistant.idle")
    await until("the shell runs", long_shell_runs)
    await watched.session.send("wait for one")
    await handlers.started_all(1)
    await watched.session.abort()
    assert long_shell_runs(), "an abort of a turn has ended a shell that it does not cover"
    await watched.session.abort()
    await until("the shell is gone", lambda: not long_shell_runs())


async def permission(server, watched, asked):
    await watched.ask("touch a file")
    assert asked == ["shell"], asked
    done = [event.data for event in watched.events if event.type.value == "tool.execution_complete"]
    assert [data.success for data in done] == [False], done
    assert done[0].error.code == "denied", done
    watched.before("permission.requested", "permission.completed", "tool.execution_complete")
    [answer] = [event.data.result for event in watched.events if event.type.value == "permission.completed"]
    assert answer.kind == "denied-interactively-by-user", answer


async def hooks(server, watched, seen):
    await watched.ask("echo three")
    done = [event.data for event in watched.events if event.type.value == "tool.execution_complete"]
    outcomes = sorted((data.success, data.error.message if data.error else "") for data in done)
    assert outcomes[0] == (False, "the call did not run: not b"), outcomes
    assert [success for success, _ in outcomes] == [False, True, True], outcomes
    assert seen.count("pre") == 3 and seen.count("post") == 2, seen


async def stalled_hook(server, watched, begun):
    await watched.session.send("echo three")
    await asyncio.wait_for(begun.wait(), SOON)
    await watched.session.abort()
    await watched.until("session.idle")
    answer = await watched.session.send_and_wait("hello again", timeout=SOON)
    assert answer.data.content == "Hello again.", answer


async def resume_and_delete():
    first = client()
    await first.start()
    session = await first.create_session()
    await session.send_and_wait("hello", timeout=SOON)
    name = session.session_id
    await first.stop()
    second = client()
    await second.start()
    try:
        listed = await second.list_sessions()
        assert name in [entry.session_id for entry in listed], listed
        again = await second.resume_session(name)
        answer = await again.send_and_wait("hello again", timeout=SOON)
        assert answer.data.content == "Hello again.", answer
        events = [event.type.value for event in await again.get_events()]
        assert events.count("user.message") == 2, events
        await second.delete_session(name)
        assert name not in [entry.session_id for entry in await second.list_sessions()]
    finally:
        await second.stop()


async def stop():
    """The end of the client ends its calls and its shells, at once."""
    handlers, watched, server = Handlers(), Watched(), client()
    await server.start()
    options = {"on_event": watched.heard, "on_permission_request": PermissionHandler.approve_all}
    watched.session = await server.create_session(tools=handlers.tools(), **options)
    await watched.session.send("start a long shell")
    await watched.until("assistant.idle")
    await until("the shell runs", long_shell_runs)
    await watched.session.send("wait for one")
    await handlers.started_all(1)
    begun = time.monotonic()
    await server.stop()
    took = time.monotonic() - begun
    assert took < 0.9, f"the stop took {took} s"
    await until("the handler is cancelled", lambda: handlers.cancelled)
    assert not long_shell_runs(), "the shell still runs"


async def server_killed():
    first = client()
    await first.start()
    handlers = Handlers()
    session = await first.create_session(tools=handlers.tools())
    await session.send_and_wait("hello", timeout=SOON)
    name = session.session_id
    await session.send("wait for one")
    await handlers.started_all(1)
    first._process.kill()
    await asyncio.to_thread(first._process.wait)
    await first.force_stop()
    second = client()
    await second.start()
    try:
        again = await second.resume_session(name)
        answer = await again.send_and_wait("hello again", timeout=SOON)
        assert answer.data.content == "Hello again.", answer
    finally:
        await second.stop()


async def scenario(name):
    handlers, asked, seen, begun = Handlers(), [], [], asyncio.Event()

    def ask(request, invocation):
        asked.append(getattr(request.kind, "value", request.kind))
        return PermissionDecisionReject(feedback="not here")

    async def pre(hook, invocation):
        seen.append("pre")
        if (hook.get("toolArgs") or {}).get("text") == "b":
            return {"permissionDecision": "deny", "permissionDecisionReason": "not b"}
        return {"permissionDecision": "allow"}

    async def post(hook, invocation):
        seen.append("post")

    async def stall(hook, invocation):
        begun.set()
        await asyncio.Event().wait()

    plain = {
        "send": send,
        "three_tools": three_tools,
        "background_shell": background_shell,
        "stuck_background": stuck_background,
    }
    handled = {
        "abort": abort,
        "aborted_wait": aborted_wait,
        "cancel_one_of_three": cancel_one_of_three,
        "abort_leaves_background": abort_leaves_background,
    }
    if name in plain:
        await with_session(plain[name], tools=handlers.tools())
    elif name in handled:
        await with_session(lambda *of: handled[name](*of, handlers), tools=handlers.tools())
    elif name == "stream":
        await with_session(stream, streaming=True)
    elif name == "permission":
        await with_session(lambda *of: permission(*of, asked), on_permission_request=ask)
    elif name == "hooks":
        of_hooks = {"on_pre_tool_use": pre, "on_post_tool_use": post}
        await with_session(lambda *of: hooks(*of, seen), tools=handlers.tools(), hooks=of_hooks)
    elif name == "stalled_hook":
        of_hooks = {"on_pre_tool_use": stall}
        await with_session(lambda *of: stalled_hook(*of, begun), tools=handlers.tools(), hooks=of_hooks)
    elif name == "resume_and_delete":
        await resume_and_delete()
    elif name == "stop":
        await stop()
    elif name == "server_killed":
        await server_killed()
    else:
        raise AssertionError(f"no scenario {name}")


for name in SCENARIOS:
    asyncio.run(asyncio.wait_for(scenario(name), 40))
    print(f"passed {name}", flush=True)
