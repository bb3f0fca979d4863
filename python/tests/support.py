"""Models and measurements for the tests."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from allstop import Agent, Model, ModelRequest, Receipt, Reply, Run

LIMIT_S = 10.0
"""Limit of each wait. A test that needs longer fails."""

TREE_PROOF, CONTAINMENT = (
    ("process_tree_empty", "keeper") if sys.platform == "linux" else ("process_group_empty", "group_and_marker")
)
"""Proof and containment of a process tree that was stopped."""


def calls(tool: str, **arguments: Any) -> Model:
    """A model that calls a tool once, and then answers `done`."""

    def answer(request: ModelRequest) -> str | Reply:
        return "done" if request.tool_results else Reply(calls=[(tool, arguments)])

    return Model.from_function(answer, name="test")


def hangs(asked: asyncio.Semaphore | None = None) -> Model:
    """A model that never answers. Releases `asked` once for each request."""

    async def answer(_request: ModelRequest) -> str:
        if asked is not None:
            asked.release()
        await asyncio.Event().wait()
        return "never"

    return Model.from_function(answer, name="test")


async def begun(run: Run) -> Run:
    """Waits until the function of a tool has sent output."""
    return await until(run, "tool_output")


async def asked(run: Run) -> Run:
    """Waits until a run has asked its model."""
    return await until(run, "step_started")


async def until(run: Run, type: str) -> Run:
    """Waits for an event of a run."""
    async with asyncio.timeout(LIMIT_S):
        async for event in run.events():
            if event.type == type:
                return run
    raise AssertionError(f"the run ended without the event {type}")


async def cancel(work: Awaitable[Any]) -> Receipt:
    """Cancels a task that awaits the work, and returns the receipt of the exception."""

    async def wait() -> Any:
        return await work

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)  # the task begins its wait
    task.cancel()
    return await receipt_of_task(task)


async def receipt_of_task(task: asyncio.Task[Any]) -> Receipt:
    """Waits for a cancelled task, and returns the receipt of its exception."""
    try:
        async with asyncio.timeout(LIMIT_S):
            await task
    except asyncio.CancelledError as error:
        receipt = error.receipt  # type: ignore[attr-defined]
        assert isinstance(receipt, Receipt)
        return receipt
    raise AssertionError("the task was not cancelled")


def run_alone(agent: Agent, prompt: str = "go") -> str:
    """Runs a prompt in an event loop of its own."""
    return str(asyncio.run(agent.run(prompt)))


def wait_until(condition: Callable[[], bool]) -> bool:
    """Waits until a condition holds. False after the limit."""
    until = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def thread_count() -> int:
    """Number of threads of the process, also of those that Python does not know."""
    try:
        return len(os.listdir("/proc/self/task"))
    except FileNotFoundError:
        return threading.active_count()


def descriptor_count() -> int:
    """Number of open file descriptors."""
    return len(os.listdir("/dev/fd"))


def is_alive(pid: int) -> bool:
    """True if a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
