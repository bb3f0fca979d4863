"""Checks of arguments, with errors at the place of the mistake."""

from __future__ import annotations

import math
from typing import Any


def seconds(name: str, value: float | None) -> float | None:
    """Returns a time in seconds. Raises an error unless it is a finite number and not negative."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"`{name}` is a number of seconds, not {value!r}")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"`{name}` is a finite number of seconds that is not negative, not {value!r}")
    return value


def one_of(name: str, value: Any, values: tuple[str, ...]) -> Any:
    """Returns a value. Raises an error unless it is in the list."""
    if value not in values:
        raise ValueError(f"`{name}` is one of {', '.join(values)}, not {value!r}")
    return value
