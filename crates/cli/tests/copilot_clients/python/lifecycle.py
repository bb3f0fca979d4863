"""Starts and ends of servers and sessions."""

import time

from support import SOON, Handlers, Watched, client, kill_server, long_shells, opened, reopened, scenario, until


@scenario
async def resume_and_delete():
    first = client()
    await first.start()
    session = await first.create_session()
    await session.send_and_wait("hello", timeout=SOON)
    name = session.session_id
    await first.stop()
    async with reopened(name) as watched:
        listed = await watched.server.list_sessions()
        assert name in [entry.session_id for entry in listed], listed
        assert await watched.say("hello again") == "Hello again."
        kinds = [kind for kind, _ in await watched.history()]
        assert kinds.count("user.message") == 2, kinds
        await watched.server.delete_session(name)
        assert name not in [entry.session_id for entry in await watched.server.list_sessions()]


@scenario
async def stop():
    """The end of the client ends its calls and its shells, at once."""
    server = client()
    await server.start()
    watched = await Watched(server).create()
    await watched.start_long_shell()
    await watched.wait_for_one()
    begun = time.monotonic()
    await server.stop()
    took = time.monotonic() - begun
    assert took < 0.9, f"the stop took {took} s"
    await until("the cancellation of the handler", lambda: watched.handlers.cancelled)
    assert not long_shells(), "the shell still runs"


@scenario
async def stop_leaves_no_process_tree():
    """A shell whose processes ignore the signal that asks for their end."""
    async with opened(client(["--grace", "300ms"])) as watched:
        await watched.session.send("run a tree")
        await until("the three processes of the tree", lambda: len(long_shells()) == 3)
    assert not long_shells(), "processes have survived the stop"


@scenario
async def server_killed():
    first = client()
    await first.start()
    handlers = Handlers()
    session = await first.create_session(tools=handlers.tools())
    await session.send_and_wait("hello", timeout=SOON)
    await session.send("wait for one")
    await handlers.started_all(1)
    await kill_server(first)
    async with reopened(session.session_id) as watched:
        assert await watched.say("hello again") == "Hello again."
