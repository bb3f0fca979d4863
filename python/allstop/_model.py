"""Models: of a provider, or a function."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _native
from ._errors import describe


@dataclass(frozen=True)
class Reply:
    """Answer of a model that is a function: a text, and tool calls as pairs of a tool and its arguments."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = field(default_factory=tuple)


@dataclass(frozen=True)
class ModelRequest:
    """Request to a model that is a function."""

    system: str | None
    messages: list[dict[str, Any]]
    """The conversation, in the format of the log."""
    tools: list[dict[str, Any]]
    user_text: str
    """Text of the user's last message."""
    tool_results: int
    """Number of tool results since the user's last message."""


ModelFunction = Callable[[ModelRequest], "str | Reply | Awaitable[str | Reply]"]


EXCEPTIONS_MAX = 16
"""Maximum number of exceptions that wait for the `RunFailed` of their run. More runs seldom fail at the same time."""


class Model:
    """A language model."""

    def __init__(self, description: Mapping[str, Any], function: ModelFunction | None) -> None:
        self._description = json.dumps(description)
        self._function = function
        self._exceptions: deque[BaseException] = deque(maxlen=EXCEPTIONS_MAX)

    @classmethod
    def from_env(cls, name: str, *, base_url: str | None = None) -> Model:
        """Creates the model of a provider from its name, with the key in the usual environment variable.

        With `base_url`, `name` is the name of the model at this OpenAI-compatible server.
        """
        return cls({"kind": "from_env", "name": name, "base_url": base_url}, None)

    @classmethod
    def from_function(cls, function: ModelFunction, *, name: str = "function") -> Model:
        """Creates a model from a function that answers a request. An `async` function runs as a task of the event loop,
        and a stop cancels the task. Any other function runs on the event loop, so it must not block.
        """
        return cls({"kind": "function", "name": name}, function)

    def _port(self) -> tuple[str, Callable[[Any], None], Callable[[Any], None]]:
        port = _ModelPort(self._function, self._exceptions)
        return self._description, port.begin, port.cancel

    def _take_exception(self, message: str) -> BaseException | None:
        """Takes the exception of the function that has led to this message of a failure."""
        found = next((one for one in reversed(self._exceptions) if describe(one) in message), None)
        if found is not None:
            self._exceptions.remove(found)
        return found


class _ModelPort:
    """Runs the calls of a model as tasks."""

    def __init__(self, function: ModelFunction | None, exceptions: deque[BaseException]) -> None:
        self._function = function
        self._exceptions = exceptions
        self._tasks: dict[int, asyncio.Task[Any]] = {}

    def begin(self, call: _native.ModelCall) -> None:
        def end(task: asyncio.Task[str]) -> None:
            del self._tasks[call.key]
            try:
                call.answer(task.result())
            except asyncio.CancelledError as error:
                call.fail(describe(error))
            except BaseException as error:
                self._exceptions.append(error)
                call.fail(describe(error))

        task = asyncio.get_running_loop().create_task(self._answer(call), name="allstop-model")
        self._tasks[call.key] = task
        task.add_done_callback(end)

    def cancel(self, key: int) -> None:
        if (task := self._tasks.get(key)) is not None:
            task.cancel()

    async def _answer(self, call: _native.ModelCall) -> str:
        if self._function is None:
            raise RuntimeError("this model is not a function")
        answer = self._function(ModelRequest(**json.loads(call.request)))
        if inspect.isawaitable(answer):
            answer = await answer
        reply = Reply(answer) if isinstance(answer, str) else answer
        if not isinstance(reply, Reply):
            raise TypeError(f"a model returns a text or a `Reply`, not {reply!r}")
        calls = [[name, dict(given)] for name, given in reply.calls]
        return json.dumps({"text": reply.text, "calls": calls}, allow_nan=False)
