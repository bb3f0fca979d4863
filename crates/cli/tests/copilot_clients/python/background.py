"""Waits for background work, and its end."""

import asyncio
import time

from support import long_shells, opened, scenario, until

# Time that the finite background work of the script takes, nearly.
WORK_MIN = 1


async def assert_waits(prompt, text):
    async with opened() as watched:
        begun = time.monotonic()
        assert await watched.say(prompt) == text
        assert time.monotonic() - begun >= WORK_MIN, "the wait ended before the background work"


async def assert_stuck(watched, prompt):
    """Checks that the wait for work that never ends is ended by its own timeout. Returns the running work."""
    begun = time.monotonic()
    try:
        await watched.session.send_and_wait(prompt, timeout=0.7)
    except asyncio.TimeoutError:
        assert time.monotonic() - begun < 5
    else:
        raise AssertionError("the wait ended although the work runs")
    assert "session.idle" not in watched.types()
    tasks = await watched.session.rpc.tasks.list()
    return [(task.type, task.status.value) for task in tasks.tasks]


@scenario
async def background_shell():
    await assert_waits("start a shell", "Started.")


@scenario
async def background_agent():
    await assert_waits("start an agent", "Started an agent.")


@scenario
async def stuck_background():
    async with opened() as watched:
        assert await assert_stuck(watched, "start a long shell") == [("shell", "running")]
        assert long_shells()
        # An abort without a turn ends what the session waits for, and says so.
        await watched.session.abort()
        await until("the end of the shell", lambda: not long_shells())
        await watched.until("session.idle")


@scenario
async def stuck_background_agent():
    async with opened() as watched:
        assert await assert_stuck(watched, "start a stuck agent") == [("agent", "running")]
        assert await watched.session.rpc.cancel_all_background_agents() == 1
        await watched.until("session.idle")
        assert await watched.say("hello again") == "Hello again."


@scenario
async def wait_for_pending_reports_drained_or_timed_out():
    async with opened() as watched:
        await watched.start_long_shell()
        answer = await watched.request("session.tasks.waitForPending", timeoutMs=200)
        assert answer == {"drained": False, "timedOut": True}, answer
        assert long_shells(), "the end of a wait has stopped the shell"
        waiting = asyncio.create_task(watched.request("session.tasks.waitForPending", timeoutMs=10_000))
        [task] = (await watched.session.rpc.tasks.list()).tasks
        [again] = (await watched.session.rpc.tasks.list()).tasks
        assert again.started_at == task.started_at, "the start of a task is the time of the question"
        cancelled = await watched.request("session.tasks.cancel", id=task.id)
        assert cancelled["cancelled"] is True, cancelled
        assert await waiting == {"drained": True, "timedOut": False}
        assert await watched.request("session.tasks.waitForPending") == {"drained": True, "timedOut": False}
