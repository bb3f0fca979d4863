"""Parts of all scenarios: clients, a session whose events are kept, tools with an account of their calls."""

import asyncio
import contextlib
import os
import pathlib
import sys
import time

from copilot import CopilotClient, RuntimeConnection
from copilot.session import PermissionHandler
from copilot.tools import Tool, ToolResult

SPLIT = sys.argv.index("--")
ARGUMENTS, NAMES = sys.argv[1:SPLIT], sys.argv[SPLIT + 1 :]
# A command that no other process has.
LONG_SLEEP = os.environ.get("LONG_SLEEP", "")
# Far more than anything takes on a busy machine.
SOON = 15
# Every scenario by its name.
SCENARIOS = {}


def scenario(run):
    """Registers a scenario under its own name."""
    assert run.__name__ not in SCENARIOS, run.__name__
    SCENARIOS[run.__name__] = run
    return run


def client(more_arguments=()):
    """A client that starts the server and talks to it by pipes."""
    arguments = [*ARGUMENTS, *more_arguments]
    if not arguments:
        return CopilotClient()
    return CopilotClient(connection=RuntimeConnection.for_stdio(args=arguments))


def long_shells():
    """Ids of the processes of the long command."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if command.replace(b"\0", b" ").strip() == LONG_SLEEP.encode():
                found.append(int(folder.name))
    return found


async def until(what, condition):
    try:
        async with asyncio.timeout(SOON):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"never seen: {what}") from None


class Handlers:
    """Tools of this client, with an account of their calls."""

    def __init__(self):
        self.started, self.requests, self.cancelled = {}, {}, {}
        self.released = asyncio.Event()

    async def wait(self, invocation):
        name = (invocation.arguments or {}).get("name", "one")
        self.requests[name] = invocation.request_id
        self.started[name] = invocation.tool_call_id
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
        await until(f"{count} started calls", lambda: len(self.started) >= count)


class Watched:
    """A session whose events are kept."""

    def __init__(self, server, handlers=None):
        self.server, self.handlers = server, handlers or Handlers()
        self.session, self.events = None, []

    def options(self, options):
        """Options of a session, with the usual ones where they are left out."""
        usual = {"on_permission_request": PermissionHandler.approve_all, "tools": self.handlers.tools()}
        return {**usual, "on_event": self.events.append, **options}

    async def create(self, **options):
        self.session = await self.server.create_session(**self.options(options))
        return self

    async def resume(self, session_id, **options):
        self.session = await self.server.resume_session(session_id, **self.options(options))
        return self

    def types(self):
        return [str(getattr(event, "raw_type", None) or event.type.value) for event in self.events]

    def of(self, kind):
        """Data of the events of a type."""
        return [event.data for event, has in zip(self.events, self.types()) if has == kind]

    async def until(self, kind, count=1):
        await until(f"{count} {kind}", lambda: self.types().count(kind) >= count)

    async def request(self, method, **params):
        """A request by the connection of the SDK, which has no function for it."""
        async with asyncio.timeout(SOON):
            return await self.server._client.request(method, {"sessionId": self.session.session_id, **params})

    async def say(self, prompt):
        """Sends a message and waits for the text of its answer."""
        answer = await self.session.send_and_wait(prompt, timeout=SOON)
        return answer.data.content

    async def say_without_wait(self, prompt):
        """The same, without a wait for background work."""
        count = self.types().count("assistant.idle") + 1
        await self.session.send(prompt)
        await self.until("assistant.idle", count)
        return self.of("assistant.message")[-1].content

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

    async def history(self):
        """Types and data of the session's history."""
        events = await self.session.get_events()
        return [(str(event.type.value), event.data) for event in events]

    async def wait_for_one(self):
        """Starts a turn whose call waits."""
        await self.session.send("wait for one")
        await self.handlers.started_all(1)

    async def start_long_shell(self):
        """A turn that leaves the long command in the background."""
        assert await self.say_without_wait("start a long shell") == "Started."
        await until("the shell", long_shells)


@contextlib.asynccontextmanager
async def opened(server=None, **options):
    """A new session of a new server, which is stopped at the end."""
    server = server or client()
    await server.start()
    try:
        yield await Watched(server).create(**options)
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def reopened(session_id, **options):
    """A session that is resumed in a new server."""
    server = client()
    await server.start()
    try:
        yield await Watched(server).resume(session_id, **options)
    finally:
        await server.stop()


async def kill_server(server):
    """Ends the server of a client without a chance to clean up."""
    server._process.kill()
    await asyncio.to_thread(server._process.wait)
    await server.force_stop()
