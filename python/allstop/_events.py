"""Events of a run or of a session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _native
from ._bridge import arrival, check_loop, expect


@dataclass(frozen=True)
class Event:
    """One event. `type` is its name, such as `tool_started`; `fields` are its values."""

    type: str
    fields: Mapping[str, Any] = field(hash=False)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


class Events(AsyncIterator[Event]):
    """Events in order. The iterator ends with the run or the session. A cancelled wait loses no event.

    One task at a time can wait for the next event.
    """

    def __init__(self, events: _native.Events, home: asyncio.AbstractEventLoop) -> None:
        self._events = events
        self._home = home
        self._has_reader = False
        self._next: asyncio.Future[str] | None = None

    async def __anext__(self) -> Event:
        check_loop(self._home)
        if self._has_reader:
            raise RuntimeError("another task waits for the next of these events; use one reader")
        if self._next is None:
            self._next, receive = expect()
            self._events.next(receive)
        self._has_reader = True
        try:
            event = json.loads(await arrival(self._next))
        finally:
            self._has_reader = False
        self._next = None
        if event is None:
            raise StopAsyncIteration
        return Event(event.pop("event"), event)

    async def next_call(self) -> str | None:
        """Skips to the start of the next tool call, and returns its id. `None` after the last event."""
        async for event in self:
            if event.type == "tool_started":
                return str(event["call_id"])
        return None
