"""Work that a task awaits: a run, the turn of a message, a command."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Callable
from typing import Any

from . import _native
from ._bridge import expect, live
from ._errors import cancelled
from ._receipt import Receipt

RECHECK_S = 0.25
"""Pause between two looks for a receipt. A `KeyboardInterrupt` of a second Ctrl-C can lose the message with the receipt."""

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
        await asyncio.wait([self._received])
        return Receipt._from_json(json.loads(self._received.result()))

    def __await__(self) -> Any:
        return self.receipt().__await__()

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
        return StopInProgress._request(self._stop, kind, detail)

    def _stop_at_exit(self) -> _native.Stop:
        return self._stop("shutdown", "exit of the interpreter", lambda _: None)

    async def wait(self) -> Any:
        """Waits for the end.

        A cancellation of the task stops the work, and raises `asyncio.CancelledError` with the receipt. A second
        cancellation ends the grace of the stop.
        """
        stopping: StopInProgress | None = None
        waits_for = self.finished
        while not waits_for.done():
            try:
                await asyncio.wait([waits_for], timeout=None if stopping is None else RECHECK_S)
            except asyncio.CancelledError:
                if stopping is None:
                    stopping = self.stop("user", "asyncio cancel")
                    waits_for = stopping._received
                else:
                    stopping.force()
            if stopping is not None:
                stopping._recheck()
        if stopping is not None:
            live.discard(self)  # the receipt is there, so the exit of the interpreter waits for nothing
            raise cancelled(await stopping)
        return self.finished.result()


def _end(job: weakref.ref[Job]) -> None:
    if (ended := job()) is not None:
        live.discard(ended)
