"""Exceptions."""

from __future__ import annotations

import asyncio
from typing import Any

from ._receipt import Receipt


class Stopped(Exception):
    """A stop ended the work: of a user, a deadline or another message. `receipt` lists the work."""

    receipt: Receipt

    def __init__(self, receipt: Receipt) -> None:
        super().__init__(str(receipt))
        self.receipt = receipt


class RunFailed(Exception):
    """A turn failed or reached a limit, or a guardrail refused it."""

    reason: str
    """Reason of the end, such as `error` or `max_steps_reached`."""
    kind: str | None
    """Kind of the error; `None` if no part failed."""
    hint: str | None
    """Remedy, if one is known."""
    receipt: Receipt | None
    """Receipt of the work that ran at the failure."""

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(raw["message"])
        self.reason = raw["reason"]
        self.kind = raw.get("kind")
        self.hint = raw.get("hint")
        self.receipt = Receipt._from_json(raw["receipt"]) if raw.get("receipt") else None


class ToolStopped(Exception):
    """Raised inside a tool by `ToolCx.checkpoint` and `ToolCx.sleep` if a stop covers the call."""


def describe(error: BaseException) -> str:
    """Text of an exception. Rust accepts only valid Unicode."""
    text = f"{type(error).__name__}: {error}"
    return text.encode(errors="backslashreplace").decode()


def receipt_of(error: BaseException | None) -> Receipt | None:
    """Returns the receipt of an exception, or of an exception that led to it.

    Finds the receipt of a cancelled run in the `asyncio.CancelledError`, in the `TimeoutError` of `asyncio.timeout`, and
    in a `KeyboardInterrupt`.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        receipt = getattr(error, "receipt", None)
        if isinstance(receipt, Receipt):
            return receipt
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def cancelled(receipt: Receipt | None) -> asyncio.CancelledError:
    """Creates the exception of a cancelled run. The receipt is `None` if it has not arrived.

    Its type is exactly `asyncio.CancelledError`, because `asyncio.timeout` ignores subclasses before Python 3.13.
    """
    error = asyncio.CancelledError(str(receipt) if receipt else "no receipt arrived; the work may still run")
    error.receipt = receipt  # type: ignore[attr-defined]
    return error
