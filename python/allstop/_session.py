"""Sessions: conversations whose turns can be stopped."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from . import _native
from ._bridge import arrival, check_loop, expect, live
from ._errors import cancelled, receipt_of
from ._events import Events
from ._job import Job, StopInProgress, outlast_cancellations
from ._receipt import Receipt

if TYPE_CHECKING:
    from ._agent import Agent, Answer
    from ._model import Model

FollowUp = Literal["reject", "enqueue", "interrupt", "replace", "steer"]
"""Policy for a message that arrives while a turn runs."""

WAIT_DEFAULT_S = 60.0
"""Usual limit of `Session.send_and_wait`."""


@dataclass(frozen=True)
class WaitResult:
    """Result of `Session.send_and_wait`."""

    answer: Answer | None
    """The answer; `None` if the turn still runs or waits."""
    timed_out: bool
    """True if the limit passed. Nothing was stopped."""
    running: list[dict[str, Any]]
    """Background work that still runs."""


class Message:
    """A sent message. Awaiting it returns its answer. A cancellation of the wait stops nothing."""

    def __init__(self, id: str, finished: asyncio.Future[str], model: Model) -> None:
        self.id = id
        self._model = model
        self._finished = finished

    def __await__(self) -> Any:
        return self._wait().__await__()

    async def _wait(self) -> Answer:
        from ._agent import answer_of

        return answer_of(json.loads(await arrival(self._finished)), self._model)


class Session:
    """A conversation. `Agent.session` creates it; `async with` opens and closes it."""

    def __init__(
        self,
        agent: Agent,
        *,
        id: str | None,
        store: str | None,
        follow_up: FollowUp,
        local_tools: str | None,
        output: str | None,
    ) -> None:
        self._agent = agent
        self._description: dict[str, Any] = {"id": id, "store": store, "follow_up": follow_up, "local_tools": None}
        self._local_tools = local_tools
        self._output = output
        self._own_output: tempfile.TemporaryDirectory[str] | None = None
        self._opened: _native.Session | None = None
        self._home: asyncio.AbstractEventLoop

    async def open(self) -> Session:
        """Opens the session."""
        if self._local_tools is not None:
            if self._output is None:
                self._own_output = tempfile.TemporaryDirectory(prefix="allstop-")
                self._output = self._own_output.name
            self._description["local_tools"] = [os.fspath(self._local_tools), os.fspath(self._output)]
        self._home = asyncio.get_running_loop()
        opened, receive = expect()
        try:
            self._agent._native().open_session(json.dumps(self._description), receive)
            session = await arrival(opened)
            if isinstance(session, str):
                raise RuntimeError(session)
        except asyncio.CancelledError:
            await outlast_cancellations(opened, lambda: None)
            if opened.done() and isinstance(opened.result(), _native.Session):
                await self._close(opened.result())
            raise
        except BaseException:
            self._remove_own_output()
            raise
        self._opened = session
        live.add(self)
        return self

    async def close(self) -> Receipt:
        """Stops the work of the session, and closes it. A stored session can be opened again afterwards.

        A cancellation of the task ends the grace. The session is closed nevertheless, and the `asyncio.CancelledError`
        has the receipt.
        """
        receipt, was_cancelled = await self._close(self._session)
        live.discard(self)
        if was_cancelled or receipt is None:
            raise cancelled(receipt)
        return receipt

    async def _close(self, session: _native.Session) -> tuple[Receipt | None, bool]:
        """Closes a session. Returns the receipt, and true if the task was cancelled meanwhile."""

        def force() -> None:
            session.stop(json.dumps("session"), "user", "asyncio cancel", lambda _: None).force()

        closed, receive = expect()
        session.close(receive)
        was_cancelled = await outlast_cancellations(closed, force)
        self._remove_own_output()
        return Receipt._from_json(json.loads(closed.result())) if closed.done() else None, was_cancelled

    async def __aenter__(self) -> Session:
        return await self.open()

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        receipt = await self.close()
        if isinstance(error, asyncio.CancelledError) and receipt_of(error) is None:
            error.receipt = receipt  # type: ignore[attr-defined]

    @property
    def _any_loop(self) -> _native.Session:
        if self._opened is None:
            raise RuntimeError("the session is not open: use `async with agent.session() as session`")
        return self._opened

    @property
    def _session(self) -> _native.Session:
        session = self._any_loop
        check_loop(self._home)
        return session

    @property
    def id(self) -> str:
        """Id of the session."""
        return self._any_loop.id

    def _remove_own_output(self) -> None:
        if self._own_output is not None:
            self._own_output.cleanup()

    def send(self, text: str, *, follow_up: FollowUp | None = None) -> Message:
        """Sends a message. Raises `RuntimeError` if the session refuses it."""
        finished, receive = expect()
        policy = None if follow_up is None else json.dumps(follow_up)
        return Message(self._session.send(text, policy, receive), finished, self._agent._model)

    async def run(self, text: str) -> Answer:
        """Sends a message, and returns its answer. A cancellation of the task stops the turn, as in `Agent.run`."""
        from ._agent import answer_of

        message, session = self.send(text), self._session
        target = json.dumps({"message": message.id})
        job = Job(message._finished, lambda kind, detail, receive: session.stop(target, kind, detail, receive))
        return answer_of(json.loads(await job.wait()), self._agent._model)

    async def send_and_wait(self, text: str, *, timeout: float = WAIT_DEFAULT_S) -> WaitResult:
        """Sends a message, and waits until its turn has ended and no attached background work runs.

        After `timeout` seconds it returns without an answer. Neither this limit nor a cancellation stops anything.
        """
        from ._agent import answer_of

        waited, receive = expect()
        self._session.send_and_wait(text, timeout, receive)
        result = json.loads(await arrival(waited))
        if (refused := result.get("refused")) is not None:
            raise RuntimeError(refused)
        outcome = result["outcome"]
        return WaitResult(
            answer=None if outcome is None else answer_of(outcome, self._agent._model),
            timed_out=result["timed_out"],
            running=result["running"],
        )

    def stop(
        self, extent: Literal["turn", "turn_and_background", "session"] = "turn", *, detail: str | None = None
    ) -> StopInProgress:
        """Stops the turn, or more, with cause `user`. Await the result for the receipt."""
        return self._stop(json.dumps(extent), detail)

    def stop_call(self, call_id: str) -> StopInProgress:
        """Stops one call; the turn continues, and the model receives a result that reports the stop."""
        return self._stop(json.dumps({"call": call_id}), None)

    def cancel_call(self, call_id: str) -> bool:
        """Like `stop_call`, without a receipt. True if this request has stopped the call."""
        return self._any_loop.cancel_call(call_id)

    async def history(self) -> list[dict[str, Any]]:
        """The messages of the committed conversation, in the format of the log."""
        read, receive = expect()
        self._session.history(receive)
        result = json.loads(await arrival(read))
        if (error := result.get("error")) is not None:
            raise RuntimeError(error)
        messages: list[dict[str, Any]] = result["messages"]
        return messages

    def events(self) -> Events:
        """Events from now on."""
        return Events(self._session.events(), self._home)

    def _stop(self, target: str, detail: str | None) -> StopInProgress:
        session = self._session
        return StopInProgress._request(
            lambda kind, detail, receive: session.stop(target, kind, detail, receive), "user", detail
        )

    def _stop_at_exit(self) -> _native.Stop:
        return self._any_loop.stop(json.dumps("session"), "shutdown", "exit of the interpreter", lambda _: None)
