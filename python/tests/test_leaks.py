"""A thousand cancelled runs leave no thread, no task and no file descriptor."""

from __future__ import annotations

import asyncio
import gc

from allstop import Agent, ToolCx, exec, tool
from support import asked, begun, calls, cancel, descriptor_count, hangs, thread_count, wait_until

RUNS = 1_000
LOOPS = 30


def test_cancelled_runs_leak_nothing() -> None:
    @tool
    async def waits(cx: ToolCx) -> None:
        cx.output("begun")
        await asyncio.Event().wait()

    @tool
    def blocks(cx: ToolCx) -> None:
        cx.output("begun")
        cx.sleep(600)

    async def main() -> None:
        agents = [
            (Agent(calls("waits"), tools=[waits]), begun),
            (Agent(calls("blocks"), tools=[blocks]), begun),
            (Agent(hangs()), asked),
        ]

        async def cancelled_run(number: int) -> None:
            agent, is_ready = agents[number % len(agents)]
            receipt = await cancel(await is_ready(agent.start("go")))
            assert receipt.quiet, receipt

        for number in range(len(agents)):
            await cancelled_run(number)
        gc.collect()
        before, tasks = resources(), asyncio.all_tasks()
        for number in range(RUNS):
            await cancelled_run(number)
        # The last thread may still be on its way out.
        assert wait_until(lambda: resources() <= before)
        assert asyncio.all_tasks() == tasks

    asyncio.run(main())


def test_event_loops_leak_nothing() -> None:
    agent = Agent(calls("absent"))

    def run_once() -> None:
        assert str(asyncio.run(agent.run("go"))) == "done"
        assert str(agent.run_sync("go")) == "done"
        assert asyncio.run(exec(["true"])).code == 0

    run_once()
    gc.collect()
    before = resources()
    for _ in range(LOOPS):
        run_once()
    # No garbage collection: the end of a loop frees its threads and descriptors. A thread needs a moment to end.
    assert wait_until(lambda: resources() <= before)


def resources() -> int:
    """Number of threads and descriptors. Values of earlier tests may still be freed meanwhile."""
    return thread_count() + descriptor_count()
