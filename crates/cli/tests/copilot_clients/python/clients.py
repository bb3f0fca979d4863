"""Clients of a server on a port: some are killed, several share a session, one does not read."""

import asyncio
import os
import time

from copilot.rpc import PermissionDecisionApproveOnce, PermissionDecisionReject
from port import Port, deaf_client, other_process, serving
from support import SOON, Watched, long_shells, scenario, until

# The events that a session keeps and the queue of one connection, with room. The output of the turn is 80 MB, of which
# a queue without a bound would be a second copy.
MEMORY_GROWTH_MAX_KB = 120 * 1024


@scenario
async def client_that_will_be_killed():
    """Not a scenario by itself: starts a shell and waits in a handler, in the session that the environment names."""
    client = Port(None, os.environ["ALLSTOP_TEST_PORT"]).client()
    await client.start()
    watched = await Watched(client).create(session_id=os.environ["ALLSTOP_TEST_SESSION"])
    await watched.start_long_shell()
    await watched.wait_for_one()
    print("waiting", flush=True)
    await asyncio.Event().wait()


async def kill_a_client(port, session):
    environment = {"ALLSTOP_TEST_PORT": str(port.number), "ALLSTOP_TEST_SESSION": session}
    async with other_process("client_that_will_be_killed", **environment) as process:
        assert await asyncio.wait_for(process.stdout.readline(), SOON) == b"waiting\n"
        process.kill()
        await process.wait()


@scenario
async def killed_client_is_replaced():
    async with serving() as port:
        await kill_a_client(port, "left")
        async with port.connected() as watched:
            await watched.resume("left", continue_pending_work=True)
            # The call still waits, and so does its shell.
            await watched.handlers.started_all(1)
            assert long_shells()
            watched.handlers.released.set()
            await watched.until("assistant.idle")
            assert watched.of("assistant.message")[-1].content == "Waited."
            [completed] = watched.of("tool.execution_complete")
            assert completed.result.content == "released one", completed
            await watched.session.abort()
            await watched.until("session.idle")
            assert await watched.say("hello again") == "Hello again."


@scenario
async def killed_client_is_not_replaced():
    async with serving("--unattended", "500ms") as port:
        await kill_a_client(port, "left")
        await until("the end of the shell", lambda: not long_shells())
        async with port.connected() as watched:
            # It may still be closing: then the server waits.
            await watched.resume("left")
            events = (await watched.request("session.getMessages"))["events"]
            [receipt] = [event["data"]["receipt"] for event in events if event["type"] == "allstop.receipt"]
            assert receipt["cause"]["kind"] == "disconnect", receipt
            assert await watched.say("hello again") == "Hello again."
            # Its call is not requested again.
            assert not watched.handlers.started


@scenario
async def clients_share_a_session():
    """Both get the events; when the first one leaves, the other goes on with the turn that runs."""
    async with serving() as port, port.connected() as second:
        async with port.connected() as first:
            await first.create()
            session = first.session.session_id
            await second.resume(session)
            assert await first.say("echo three") == "All echoed."
            await second.until("session.idle")
            for kind in ("user.message", "assistant.message", "tool.execution_complete", "session.idle"):
                assert first.types().count(kind) == second.types().count(kind) > 0, (kind, second.types())
            await second.session.send("wait for one")
            for watched in (first, second):
                await watched.handlers.started_all(1)
        assert not second.handlers.cancelled
        second.handlers.released.set()
        await second.until("session.idle", 2)
        assert second.of("assistant.message")[-1].content == "Waited."
        assert await second.say("hello again") == "Hello again."


@scenario
async def first_answer_to_a_question_counts():
    """The slow client refuses what the fast one has approved."""
    answered, asked = asyncio.Event(), []

    async def fast(request, invocation):
        asked.append("fast")
        return PermissionDecisionApproveOnce()

    async def slow(request, invocation):
        asked.append("slow")
        await answered.wait()
        return PermissionDecisionReject(feedback="too late")

    async with serving() as port, port.connected() as first, port.connected() as second:
        await first.create(on_permission_request=slow)
        await second.resume(first.session.session_id, on_permission_request=fast)
        waiting = asyncio.create_task(first.say("touch a file"))
        await first.until("permission.completed")
        answered.set()
        assert await waiting == "Done."
        await second.until("session.idle")
        for watched in (first, second):
            [completed] = watched.of("permission.completed")
            [call] = watched.of("tool.execution_complete")
            assert (completed.result.kind, call.success) == ("approved", True), (completed, call)
        assert sorted(asked) == ["fast", "slow"], asked
        [question] = first.of("permission.requested")
        late = {"requestId": question.request_id, "result": {"kind": "reject"}}
        answer = await first.request("session.permissions.handlePendingPermissionRequest", **late)
        assert answer == {"success": False}, answer


@scenario
async def deaf_client_delays_no_other_client():
    async with serving() as port, port.connected() as watched, port.connected() as other:
        await watched.create()
        await other.create()
        assert await other.say("hello") == "Hello."
        before = port.memory_kb("VmRSS")
        deaf = deaf_client(port.number, watched.session.session_id)
        try:
            assert await watched.say("say much") == "Said much."
            begun = time.monotonic()
            assert await other.say("hello") == "Hello."
            assert await watched.say("hello again") == "Hello again."
            took = time.monotonic() - begun
            assert took < 10, f"two short messages took {took} s"
            growth = port.memory_kb("VmHWM") - before
            assert growth < MEMORY_GROWTH_MAX_KB, f"the memory has grown by {growth} kB"
        finally:
            deaf.close()
