"""Receipts: the result of a stop, as typed values."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from . import _native

ItemKind = Literal[
    "model_call", "tool_call", "background", "permission", "hook", "guardrail", "append", "future", "thread", "remote",
    "process", "engine",
]
"""Kind of work of an item."""

State = Literal["finished", "stopped", "unknown", "still_running", "unreachable", "refused"]
"""State of an item after the stop."""

CauseKind = Literal[
    "user", "superseded", "deadline", "inactivity", "budget", "guardrail", "parent", "shutdown", "lease_lost",
    "disconnect", "failure",
]
"""Kind of the cause of a stop."""


@dataclass(frozen=True)
class Usage:
    """Metered tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    estimated: bool = False


@dataclass(frozen=True)
class Cause:
    """Cause of a stop."""

    kind: CauseKind
    detail: str | None = None
    by: str | None = None


@dataclass(frozen=True)
class Evidence:
    """Evidence that work ended: verified from outside, acknowledged by the work at a checkpoint, or both."""

    verified: str | None = None
    observed_at: str | None = None
    may_miss: str | None = None
    """Kind of work that the evidence cannot exclude, such as processes that left their group; `None` for none."""


@dataclass(frozen=True)
class Item:
    """One piece of work in a receipt."""

    kind: ItemKind
    id: str
    name: str
    state: State
    how: str | None = None
    why: str | None = None
    evidence: Evidence = Evidence()
    after_ms: float | None = None
    label: str | None = None
    effect: str | None = None
    containment: str | None = None
    processes: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    tokens_received_after_stop: int | None = None
    note: str | None = None


@dataclass(frozen=True)
class Receipt:
    """Receipt of a stop: the work that ended, the work that did not, and the evidence.

    `quiet` is true if nothing in the extent of the stop runs any more.
    """

    stop_id: str
    target: str
    extent: str
    cause: Cause
    requested_at: str
    quiet: bool
    quiet_after_ms: float | None
    cancel_observed: bool
    items: tuple[Item, ...]
    conversation: Literal["unchanged", "kept_completed_steps", "unknown"]
    usage: Usage
    outcome: Literal["already_ended", "ending", "not_found"] | None
    raw: Mapping[str, Any] = field(hash=False)
    """The receipt as JSON, in the format `allstop.receipt/1`."""

    @classmethod
    def _from_json(cls, raw: Mapping[str, Any]) -> Receipt:
        return cls(
            stop_id=raw["stop_id"],
            target=raw["target"],
            extent=raw["extent"],
            cause=_pick(Cause, raw["cause"]),
            requested_at=raw["requested_at"],
            quiet=raw["quiet"],
            quiet_after_ms=raw.get("quiet_after_ms"),
            cancel_observed=raw["cancel_observed"],
            items=tuple(_item(item) for item in raw["items"]),
            conversation=raw["conversation"],
            usage=_pick(Usage, raw["usage"]),
            outcome=raw.get("outcome"),
            raw=raw,
        )

    def __str__(self) -> str:
        return _native.receipt_text(json.dumps(self.raw))


def _item(raw: Mapping[str, Any]) -> Item:
    values = {**raw, "evidence": _pick(Evidence, raw), "processes": tuple(raw.get("processes", ()))}
    return _pick(Item, values)


_T = TypeVar("_T")


def _pick(kind: type[_T], raw: Mapping[str, Any]) -> _T:
    """Creates a value from its fields, and ignores fields of newer versions."""
    names = {one.name for one in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in raw.items() if name in names})
