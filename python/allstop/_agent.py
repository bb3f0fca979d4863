"""Agents, and their runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _native
from ._bridge import Bridge, expect
from ._checks import seconds
from ._errors import RunFailed, Stopped, receipt_of
from ._events import Events
from ._job import Job, StopInProgress
from ._model import Model
from ._receipt import Receipt, Usage, _pick
from ._session import FollowUp, Session
from ._tools import Tool


@dataclass(frozen=True)
class Answer:
    """Answer of a completed turn. `str(answer)` is its text."""

    text: str
    steps: int
    usage: Usage
    finish: str | None = None

    def __str__(self) -> str:
        return self.text


class Run:
    """A run in progress. Awaiting it returns the answer. A run that no variable refers to is stopped."""

    def __init__(self, run: _native.Run, finished: asyncio.Future[str], model: Model) -> None:
        self._run = run
        self._model = model
        self._job = Job(finished, run.stop)

    def __await__(self) -> Any:
        return self._wait().__await__()

    async def _wait(self) -> Answer:
        return answer_of(json.loads(await self._job.wait()), self._model)

    def stop(self, detail: str | None = None) -> StopInProgress:
        """Stops the run with cause `user`. Await the result for the receipt."""
        return self._job.stop("user", detail)

    def cancel_call(self, call_id: str) -> bool:
        """Stops one call; the turn and its other calls continue. True if this request has stopped the call."""
        return self._run.cancel_call(call_id)

    def events(self) -> Events:
        """The events of the run, from the first one on. Each event is returned once."""
        return Events(self._run.events(), self._job.finished.get_loop())


class Agent:
    """An agent: a model, tools and limits. It holds no conversation, and serves any number of runs and event loops.

    An agent uses two threads for each event loop that it runs in, so share one `Agent` between all runs.

    Times are in seconds. `grace` is the time between asking work to stop and ending it by force.
    """

    def __init__(
        self,
        model: Model,
        *,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        system: str | None = None,
        name: str | None = None,
        max_steps: int | None = None,
        grace: float | None = None,
        run_timeout: float | None = None,
        tool_timeout: float | None = None,
    ) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"`model` is a `Model`, such as `Model.from_env('gpt-5-mini')`, not {model!r}")
        self._model = model
        self._tools: Sequence[Tool] = [one if isinstance(one, Tool) else Tool(one) for one in tools]
        self._description = json.dumps(
            {
                "name": name,
                "system": system,
                "max_steps": max_steps,
                "grace_s": seconds("grace", grace),
                "run_timeout_s": seconds("run_timeout", run_timeout),
                "tool_timeout_s": seconds("tool_timeout", tool_timeout),
            }
        )

    def _native(self) -> _native.Agent:
        """The agent of the running event loop."""
        bridge = Bridge.current()
        agent = bridge.agents.get(self)
        if agent is None:
            tools = [tool._port() for tool in self._tools]
            agent = _native.Agent(bridge.mailbox, self._model._port(), tools, self._description)
            bridge.agents[self] = agent
        return agent

    def start(self, prompt: str) -> Run:
        """Starts a run: one turn of a new conversation. Needs a running event loop."""
        finished, receive = expect()
        return Run(self._native().start(prompt, receive), finished, self._model)

    async def run(self, prompt: str) -> Answer:
        """Runs a prompt, and returns the answer.

        A cancellation of the task stops the run, and raises `asyncio.CancelledError` whose attribute `receipt` is the
        receipt. `receipt_of` finds it also in the `TimeoutError` of `asyncio.timeout`. Raises `Stopped` after another
        stop, and `RunFailed` after a failure.
        """
        return await self.start(prompt)._wait()

    async def run_with_cancel(self, event: asyncio.Event, prompt: str) -> Answer:
        """Like `run`, and stops the run when the event is set. Then raises `Stopped`."""
        if not isinstance(event, asyncio.Event):
            raise TypeError(f"`event` is an `asyncio.Event`, not {event!r}")
        run = self.start(prompt)

        def stop(waiter: asyncio.Task[Any]) -> None:
            if not waiter.cancelled():
                run.stop("event")

        waiter = asyncio.ensure_future(event.wait())
        waiter.add_done_callback(stop)
        try:
            return await run._wait()
        finally:
            waiter.cancel()

    def run_sync(self, prompt: str) -> Answer:
        """Like `run`, in a program without an event loop.

        Ctrl-C stops the run, and raises `KeyboardInterrupt` whose attribute `receipt` is the receipt. A second Ctrl-C
        ends the grace.
        """
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("`run_sync` blocks its thread; in an event loop, use `await agent.run(prompt)`")
        receipts: list[Receipt | None] = []

        async def main() -> Answer:
            try:
                return await self.run(prompt)
            except asyncio.CancelledError as error:
                receipts.append(receipt_of(error))
                raise

        try:
            return asyncio.run(main())
        except KeyboardInterrupt as error:
            error.receipt = receipts[0] if receipts else None  # type: ignore[attr-defined]
            raise

    def session(
        self,
        *,
        id: str | None = None,
        store: str | None = None,
        follow_up: FollowUp = "reject",
        local_tools: str | None = None,
        output: str | None = None,
    ) -> Session:
        """Begins a session; use it with `async with`.

        `store` is a SQLite file, without which the session is in memory. A stored session with this `id` is resumed.
        `local_tools` is a folder: the session gets the tools `shell`, `background`, `read`, `write`, `edit` and `list`
        there. Commands can do anything that this process can do. Long output goes to files in the folder `output`.
        """
        return Session(self, id=id, store=store, follow_up=follow_up, local_tools=local_tools, output=output)


def answer_of(outcome: dict[str, Any], model: Model) -> Answer:
    """Returns the answer of an outcome, or raises its stop or its failure."""
    if (receipt := outcome.get("stopped")) is not None:
        raise Stopped(Receipt._from_json(receipt))
    if (failure := outcome.get("failed")) is not None:
        raise RunFailed(failure) from model._take_exception(failure["message"])
    answer = outcome["completed"]
    return _pick(Answer, {**answer, "usage": _pick(Usage, answer["usage"])})
