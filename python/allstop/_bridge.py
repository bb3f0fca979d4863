"""The connection of one event loop with the threads of Rust.

A thread of Rust puts a message into the mailbox of the event loop, and wakes the loop. The loop then calls the callback
of the message. So all functions of a program run on the event loop that started the work, or on threads that it starts.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, Protocol

from . import _native
from ._keeper import keeper_program

if TYPE_CHECKING:
    from ._agent import Agent

SHUTDOWN_WAIT_S = 4.0
"""Maximum wait at the exit of the interpreter: the usual grace, and the time for the end by force."""

_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Bridge] = weakref.WeakKeyDictionary()


class Bridge:
    """The mailbox of one event loop, and the agents of this loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.mailbox = _native.Mailbox(keeper_program())
        self.agents: weakref.WeakKeyDictionary[Agent, _native.Agent] = weakref.WeakKeyDictionary()
        # The loop refers to the bridge. A strong reference back would keep both for ever.
        self._loop = weakref.ref(loop)
        loop.add_reader(self.mailbox.fileno(), self._drain)
        self._end = self._close_with_loop()
        with contextlib.suppress(StopIteration):
            self._end.__anext__().send(None)  # begins the generator

    @staticmethod
    def current() -> Bridge:
        """Returns the bridge of the running event loop."""
        loop = asyncio.get_running_loop()
        bridge = _bridges.get(loop)
        if bridge is None:
            bridge = _bridges[loop] = Bridge(loop)
        return bridge

    async def _close_with_loop(self) -> AsyncGenerator[None, None]:
        """Closes the bridge at the end of `asyncio.run`, which ends all asynchronous generators of its loop."""
        try:
            yield
        finally:
            self._close()

    def _close(self) -> None:
        loop = self._loop()
        if loop is not None:
            loop.remove_reader(self.mailbox.fileno())
            _bridges.pop(loop, None)
        self.mailbox.close()
        self.agents.clear()

    def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        for callback, body in self.mailbox.drain():
            loop.call_soon(callback, body)


def expect() -> tuple[asyncio.Future[Any], Callable[[Any], None]]:
    """Creates a future, and the callback that sets its result."""
    future = asyncio.get_running_loop().create_future()

    def receive(body: Any) -> None:
        if not future.done():
            future.set_result(body)

    return future, receive


def check_loop(home: asyncio.AbstractEventLoop | None) -> None:
    """Raises `RuntimeError` outside of the event loop that started the work. There, no answer would arrive."""
    if asyncio.get_running_loop() is not home:
        raise RuntimeError("the work belongs to another event loop; use it in the event loop that started it")


async def arrival(future: asyncio.Future[Any]) -> Any:
    """Waits for an answer, and returns it. A cancellation of the wait loses no answer."""
    check_loop(future.get_loop())
    await asyncio.wait([future])
    return future.result()


class Stoppable(Protocol):
    """Work that the exit of the interpreter stops."""

    def _stop_at_exit(self) -> _native.Stop: ...


live: weakref.WeakSet[Any] = weakref.WeakSet()
"""The work that may still run."""


@atexit.register
def _stop_all() -> None:
    stops = [work._stop_at_exit() for work in list(live)]
    for stop in stops:
        stop.wait(SHUTDOWN_WAIT_S)
