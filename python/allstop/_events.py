"""Events of a run or of a session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import _native
from ._bridge import expect


@dataclass(frozen=True)
class Event:
    """One event. `type` is its name, such as `tool_started`; `fields` are its values."""

    type: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


class Events(AsyncIterator[Event]):
    """Events in order. The iterator ends with the run or the session. A cancelled wait loses no event."""

    def __init__(self, events: _native.Events) -> None:
        self._events = events
        self._next: asyncio.Future[str] | None = None

    async def __anext__(self) -> Event:
        if self._next is None:
            self._next, receive = expect()
            self._events.next(receive)
        await asyncio.wait([self._next])
        event = json.loads(self._next.result())
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
