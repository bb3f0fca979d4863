"""Work that a task awaits: a run, the turn of a message, a command."""

from __future__ import annotations

import asyncio
import json
import time
import weakref
from collections.abc import Callable
from typing import Any

from . import _native
from ._bridge import arrival, check_loop, expect, live
from ._errors import cancelled
from ._receipt import Receipt

RECHECK_S = 0.25
"""Pause between two looks for a receipt. A `KeyboardInterrupt` of a second Ctrl-C can lose the message with the receipt."""

FORCED_WAIT_S = 30.0
"""Maximum wait for a receipt after the grace was ended. A receipt of forced work needs a few seconds at most."""

StopFunction = Callable[[str, "str | None", Callable[[Any], None]], _native.Stop]


class StopInProgress:
    """An accepted stop. Awaiting it returns the receipt."""

    def __init__(self, stop: _native.Stop, received: asyncio.Future[str]) -> None:
        self._stop = stop
        self._received = received

    @classmethod
    def _request(cls, stop: StopFunction, kind: str, detail: str | None) -> StopInProgress:
        received, receive = expect()
        return cls(stop(kind, detail, receive), received)

    def force(self) -> None:
        """Ends the grace (the time in which work may end by itself) now."""
        self._stop.force()

    async def receipt(self) -> Receipt:
        """Waits for the receipt. A cancellation of the wait does not cancel the stop."""
        return Receipt._from_json(json.loads(await arrival(self._received)))

    def __await__(self) -> Any:
        return self.receipt().__await__()

    async def _outlast_cancellations(self) -> Receipt | None:
        """Like `receipt`, but each cancellation of the task only ends the grace. `None` if no receipt arrives."""
        await outlast_cancellations(self._received, self.force, self._recheck)
        return Receipt._from_json(json.loads(self._received.result())) if self._received.done() else None

    def _recheck(self) -> None:
        receipt = self._stop.wait(0)
        if receipt is not None and not self._received.done():
            self._received.set_result(receipt)


class Job:
    """Work in progress, with a future of its end."""

    def __init__(self, finished: asyncio.Future[Any], stop: StopFunction) -> None:
        self.finished = finished
        self._stop = stop
        live.add(self)
        # A strong reference would keep a run that no variable refers to.
        job = weakref.ref(self)
        finished.add_done_callback(lambda _: _end(job))

    def stop(self, kind: str, detail: str | None) -> StopInProgress:
        """Requests a stop."""
        check_loop(self.finished.get_loop())
        return StopInProgress._request(self._stop, kind, detail)

    def _stop_at_exit(self) -> _native.Stop:
        return self._stop("shutdown", "exit of the interpreter", lambda _: None)

    async def wait(self) -> Any:
        """Waits for the end.

        A cancellation of the task stops the work, and raises `asyncio.CancelledError` with the receipt. A second
        cancellation ends the grace of the stop.
        """
        try:
            return await arrival(self.finished)
        except asyncio.CancelledError:
            stopping = self.stop("user", "asyncio cancel")
        receipt = await stopping._outlast_cancellations()
        live.discard(self)  # the receipt is there, so the exit of the interpreter waits for nothing
        raise cancelled(receipt)


async def outlast_cancellations(
    future: asyncio.Future[Any], force: Callable[[], None], recheck: Callable[[], None] = lambda: None
) -> bool:
    """Waits for a future, also while the task is cancelled. Each cancellation calls `force`. After the first one, the
    wait has a limit. True if the task was cancelled.
    """
    until = None
    while not future.done() and (until is None or time.monotonic() < until):
        try:
            await asyncio.wait([future], timeout=RECHECK_S)
        except asyncio.CancelledError:
            force()
            until = until or time.monotonic() + FORCED_WAIT_S
        recheck()
    return until is not None


def _end(job: weakref.ref[Job]) -> None:
    if (ended := job()) is not None:
        live.discard(ended)
