"""Aborts of a turn, and what still comes from their handlers."""

import asyncio
import statistics
import time

from copilot.tools import Tool
from support import SOON, Handlers, client, kill_server, opened, reopened, scenario, until

# Median time from the call of abort() to the cancellation of the handler.
ABORT_MEDIAN_MAX = 0.05
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def late_result(watched, request):
    """The answer of a handler, sent by hand: the SDK drops it."""
    result = {"textResultForLlm": "came too late", "resultType": "success"}
    return watched.request("session.tools.handlePendingToolCall", requestId=request, result=result)


async def assert_without_effect(watched, history):
    """Checks that the session is still the same, and usable."""
    assert await watched.history() == history
    assert await watched.say("hello again") == "Hello again."
    assert "came too late" not in str(await watched.history())


@scenario
async def abort():
    async with opened() as watched:
        await watched.wait_for_one()
        begun = time.monotonic()
        await watched.session.abort()
        cancelled = watched.handlers.cancelled
        await until("the cancellation of the handler", lambda: cancelled)
        assert cancelled["one"] - begun < 0.5, cancelled["one"] - begun
        await watched.until("session.idle")
        watched.before("abort", "external_tool.completed", "assistant.turn_end", "assistant.idle", "session.idle")
        watched.before("abort", "tool.execution_complete", "assistant.idle")
        assert watched.of("session.idle")[-1].aborted is True
        assert await watched.say("hello again") == "Hello again."


@scenario
async def abort_reaches_handlers_within_50_ms():
    took = []
    async with opened() as watched:
        for _ in range(20):
            # The tools of the session are those of the first handlers.
            watched.handlers.started.clear()
            watched.handlers.cancelled.clear()
            await watched.wait_for_one()
            begun = time.monotonic()
            await watched.session.abort()
            await until("the cancellation of the handler", lambda: watched.handlers.cancelled)
            took.append(watched.handlers.cancelled["one"] - begun)
    assert statistics.median(took) < ABORT_MEDIAN_MAX, sorted(took)


@scenario
async def abort_does_not_wait_for_the_handlers_clean_up():
    """The handler ends its clean-up after the abort; the answer that it sends then comes too late, and has no effect."""
    begun, cancelled, aborted, cleaned = (asyncio.Event() for _ in range(4))
    answers, never = [], asyncio.Event()

    async def clean(invocation):
        begun.set()
        try:
            await never.wait()
        except asyncio.CancelledError:
            cancelled.set()
            await aborted.wait()
            answers.append(await late_result(watched, invocation.request_id))
            cleaned.set()
            raise

    async with opened(tools=[Tool("wait", "Waits.", clean)]) as watched:
        await watched.session.send("wait for one")
        await asyncio.wait_for(begun.wait(), SOON)
        await watched.session.abort()
        await asyncio.wait_for(cancelled.wait(), SOON)
        await watched.until("session.idle")
        assert watched.types().count("tool.execution_complete") == 1
        history = await watched.history()
        aborted.set()
        await asyncio.wait_for(cleaned.wait(), SOON)
        assert answers == [{"success": False}], answers
        await assert_without_effect(watched, history)


@scenario
async def trace_context_outlives_an_abort():
    async with opened() as watched:
        await watched.request(
            "session.send", prompt="wait for one", traceparent=TRACE, tracestate="vendor=a"
        )
        await watched.handlers.started_all(1)
        await watched.session.abort()
        await watched.until("session.idle")
        [requested] = watched.of("external_tool.requested")
        assert requested.traceparent.split("-")[1] == TRACE.split("-")[1], requested
        assert requested.tracestate == "vendor=a", requested


@scenario
async def result_after_the_end_of_its_turn():
    """The call was cancelled, and its turn has completed."""
    async with opened() as watched:
        waiting = asyncio.create_task(watched.say("wait for three"))
        await watched.handlers.started_all(3)
        call, request = watched.handlers.started["b"], watched.handlers.requests["b"]
        await watched.request("allstop.cancelToolCall", toolCallId=call)
        watched.handlers.released.set()
        assert await waiting == "Waited."
        history = await watched.history()
        assert (await late_result(watched, request))["success"] is False
        await assert_without_effect(watched, history)


@scenario
async def result_after_a_restart_of_the_server():
    first = client()
    await first.start()
    handlers = Handlers()
    session = await first.create_session(tools=handlers.tools())
    await session.send("wait for one")
    await handlers.started_all(1)
    await kill_server(first)
    async with reopened(session.session_id) as watched:
        history = await watched.history()
        answer = await late_result(watched, handlers.requests["one"])
        # The new server has never seen the request: that is no error.
        assert list(answer) == ["success"], answer
        await assert_without_effect(watched, history)
