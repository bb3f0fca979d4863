"""Tools: functions that a model can call."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import threading
from collections.abc import Callable
from typing import Any, Literal, get_args, overload

from . import _native, _schema
from ._checks import one_of, seconds
from ._errors import ToolStopped, describe
from ._receipt import Cause, _pick

Effect = Literal["read_only", "idempotent", "compensatable", "irreversible"]
"""Consequence of repeating a call."""


class ToolCx:
    """Context of one call. A tool receives it through a parameter with this type."""

    def __init__(self, call: _native.ToolCall) -> None:
        self._call = call

    @property
    def call_id(self) -> str:
        """Id of the call, as in receipts."""
        return self._call.call_id

    @property
    def session_id(self) -> str:
        """Session of the call."""
        return self._call.session_id

    @property
    def stopped(self) -> bool:
        """True if a stop covers the call."""
        return self._call.stopped

    @property
    def cause(self) -> Cause | None:
        """Cause of the stop."""
        cause = self._call.cause
        return None if cause is None else _pick(Cause, json.loads(cause))

    def checkpoint(self, name: str) -> None:
        """Acknowledges a stop of the call at this checkpoint, and raises `ToolStopped`. Returns if no stop covers it."""
        if self._call.stopped:
            self._call.acknowledge(name)
            raise ToolStopped(f"stopped at `{name}`")

    def sleep(self, seconds: float) -> None:
        """Sleeps in a blocking tool. A stop of the call ends the sleep with `ToolStopped`."""
        if self._call.wait_stopped(seconds):
            self.checkpoint("sleep")

    def output(self, text: str) -> None:
        """Sends a piece of output to the readers of events. The model does not receive it."""
        self._call.output(text)


class Tool:
    """A function that a model can call. The decorator `tool` creates it; calling it calls the function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        effect: Effect = "irreversible",
        timeout: float | None = None,
        parallel: bool = True,
    ) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function!r} is a generator; a tool returns one value, and sends output with `ToolCx.output`")
        self.name = name or getattr(function, "__name__", "")
        if not self.name:
            raise TypeError(f"{function!r} has no name; use `tool(name=...)`")
        schema, self._kinds, self._context = _schema.parameters(function, ToolCx)
        self.function = function
        self.is_blocking = not inspect.iscoroutinefunction(function)
        self._description = json.dumps(
            {
                "name": self.name,
                "description": description or inspect.getdoc(function) or self.name,
                "schema": schema,
                "effect": one_of("effect", effect, get_args(Effect)),
                "timeout_s": seconds("timeout", timeout),
                "parallel": parallel,
                "blocking": self.is_blocking,
            }
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        schema: dict[str, Any] = json.loads(self._description)["schema"]
        return schema

    def _call(self, call: _native.ToolCall) -> Any:
        """Calls the function with the arguments of the model."""
        given = json.loads(call.arguments)
        arguments = {name: _schema.convert(self._kinds[name], value) for name, value in given.items()}
        if self._context is not None:
            arguments[self._context] = ToolCx(call)
        return self.function(**arguments)

    def _port(self) -> tuple[str, Callable[[Any], None], Callable[[Any], None]]:
        port = _ThreadPort(self) if self.is_blocking else _TaskPort(self)
        return self._description, port.begin, port.cancel


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "irreversible",
    timeout: float | None = None,
    parallel: bool = True,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Turns a function into a tool.

    The types of its parameters make the JSON schema of the arguments, and its documentation describes it to the model.
    An `async` function runs as a task of the event loop, and a stop cancels the task. Any other function blocks its
    thread, so each call runs in a thread of its own. A stop cannot end a thread: the function calls
    `ToolCx.checkpoint` or `ToolCx.sleep`, and otherwise the receipt names the thread as `still_running`.

    A receipt covers the task or the thread of the tool, and the work that Allstop starts: `exec` and the local tools. It
    does not cover work that the tool starts in other ways: `asyncio.to_thread`, `asyncio.create_task`, `threading`,
    `subprocess`. A cancelled `asyncio.to_thread` keeps its thread running. Use `exec` for commands, and await or cancel
    other work in the tool.

    `effect` is the consequence of repeating a call, and `timeout` the limit of a call in seconds.
    """
    if function is not None:
        return Tool(function)
    return lambda function: Tool(function, **options)


class _TaskPort:
    """Runs the calls of an asynchronous tool as tasks."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._tasks: dict[int, asyncio.Task[Any]] = {}

    def begin(self, call: _native.ToolCall) -> None:
        has_begun = False

        async def run() -> Any:
            nonlocal has_begun
            has_begun = True
            return await self._tool._call(call)

        def end(task: asyncio.Task[Any]) -> None:
            del self._tasks[call.key]
            if task.cancelled():
                call.finish("cancelled" if has_begun else "not_begun", "the task was cancelled")
            else:
                _finish(call, task.result)

        if call.stopped:
            call.finish("not_begun", "stopped before its start")
            return
        task = asyncio.get_running_loop().create_task(run(), name=call.name)
        self._tasks[call.key] = task
        task.add_done_callback(end)

    def cancel(self, key: int) -> None:
        if (task := self._tasks.get(key)) is not None:
            task.cancel()


class _ThreadPort:
    """Runs the calls of a blocking tool in threads. The interpreter does not wait for them at its exit."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    def begin(self, call: _native.ToolCall) -> None:
        if call.stopped:
            call.finish("not_begun", "stopped before its start")
            return
        thread = threading.Thread(target=_finish, args=(call, lambda: self._tool._call(call)), name=call.name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            call.finish("not_begun", str(error))

    def cancel(self, key: int) -> None:
        """A thread cannot be cancelled. It looks at its context."""


def _finish(call: _native.ToolCall, result: Callable[[], Any]) -> None:
    """Ends a call with its result, or with the exception of its function."""
    try:
        end, text = "ok", _text(result())
    except ToolStopped as error:
        end, text = "error", str(error)
    except BaseException as error:  # also SystemExit: it ends the call, not the program
        end, text = "error", describe(error)
    call.finish(end, text)


def _text(value: Any) -> str:
    """Text of a result for the model."""
    if inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError(f"the tool returned {value!r}; declare the tool with `async def`, and return one value")
    text = value if isinstance(value, str) else json.dumps(value, default=_plain, allow_nan=False)
    if not text.isascii():
        text.encode()  # raises an error for half of a surrogate pair, which no model can read
    return text


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    return str(value)
