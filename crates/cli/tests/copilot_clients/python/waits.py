"""Timers of waits, and calls that a stop has interrupted."""

import asyncio

from model_server import ModelServer, Reply
from support import Watched, client, opened, reopened, scenario


async def assert_times_out(wait):
    try:
        await wait
    except asyncio.TimeoutError:
        return
    raise AssertionError("the wait has not timed out")


@scenario
async def timer_of_an_old_wait_does_not_disturb_a_later_turn():
    async with opened() as watched:
        # Timers of waits that end early, and of one that times out.
        answer = await watched.request("session.sendAndWait", prompt="hello", timeoutMs=900)
        assert answer["outcome"] == "completed", answer
        await assert_times_out(watched.session.send_and_wait("wait for one", timeout=0.3))
        answer = await watched.request("session.sendAndWait", prompt="hello", timeoutMs=100)
        assert (answer["outcome"], answer["turnRuns"]) == ("timed_out", True), answer
        await watched.handlers.started_all(1)
        watched.handlers.released.set()
        await watched.until("session.idle")
        assert not watched.handlers.cancelled
        assert await watched.say("run for a while") == "Ran for a while."
        assert "abort" not in watched.types() and "session.error" not in watched.types(), watched.types()


def assert_complete(messages):
    """Checks that each call of a history has its result behind its message, and that there is no other result."""
    open_calls = set()
    for message in messages:
        if message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
        else:
            assert not open_calls, f"without a result: {open_calls} in {messages}"
            open_calls = {call["id"] for call in message.get("tool_calls") or []}
    assert not open_calls, f"without a result: {open_calls} in {messages}"


@scenario
async def interrupted_calls_do_not_brick_the_session():
    """A step of a turn has completed, and its next one is aborted in the middle of two calls. A new server goes on."""
    replies = {
        "wait twice": [
            Reply("One first.", [("echo", {"text": "one"})]),
            Reply("Now both.", [("wait", {"name": "a"}), ("wait", {"name": "b"})]),
        ],
        "hello": [Reply("Hello.")],
    }
    async with ModelServer(replies) as model:
        first = client()
        await first.start()
        watched = await Watched(first).create(**model.options())
        assert await watched.say("hello") == "Hello."
        await watched.session.send("wait twice")
        await watched.handlers.started_all(2)
        await watched.session.abort()
        assert await watched.say("hello again") == "Hello."
        await watched.session.send("wait twice")
        await watched.until("external_tool.requested", 6)
        await first.stop()
        async with reopened(watched.session.session_id, **model.options()) as again:
            assert await again.say("hello at last") == "Hello."
            await again.session.send("wait twice")
            await again.handlers.started_all(2)
            again.handlers.released.set()
            await again.until("session.error")
    assert len(model.requests) >= 8, model.requests
    for request in model.requests:
        assert_complete(request["messages"])
