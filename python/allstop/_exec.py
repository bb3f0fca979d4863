"""Commands: process trees without an agent."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _native
from ._bridge import Bridge
from ._checks import seconds
from ._job import Job
from ._receipt import Receipt

GRACE_DEFAULT_S = 2.0
"""Usual time between SIGTERM and SIGKILL."""


@dataclass(frozen=True)
class CommandResult:
    """End of a command."""

    output: bytes
    """Standard output and standard error, in their order."""
    code: int | None
    """Exit code; `None` if a signal ended the command."""
    signal: int | None
    receipt: Receipt
    """Receipt of the descendants that outlived the command: they were stopped."""
    missed_bytes: int
    """Number of bytes of the output that were dropped, because the output is too long."""

    @property
    def truncated(self) -> bool:
        """True if the end of the output was dropped."""
        return self.missed_bytes > 0

    @property
    def text(self) -> str:
        """The output as text."""
        return self.output.decode(errors="replace")


async def exec(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    grace: float = GRACE_DEFAULT_S,
) -> CommandResult:
    """Runs a command, and ends its whole process tree.

    A cancellation of the task sends SIGTERM to the tree, after `grace` seconds SIGKILL, and raises
    `asyncio.CancelledError` whose attribute `receipt` has the proof that no process is left. `env` is added to the
    environment. Raises `OSError` if the command cannot start. The result has the first 64 MiB of the output; `truncated`
    is true if there was more.
    """
    if isinstance(command, (str, bytes)):
        raise TypeError(f"a command is a list of words, such as `['sh', '-c', {command!r}]`, not a text")
    words = [os.fspath(word) for word in command]
    if not words or not words[0]:
        raise ValueError("a command needs a program")
    for name, value in (env or {}).items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{name!r} with {value!r} cannot be a variable of the environment")
    program, *args = words
    description = json.dumps(
        {
            "program": program,
            "args": args,
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(env or {}),
            "grace_s": seconds("grace", grace),
        }
    )
    finished: asyncio.Future[tuple[str, bytes]] = asyncio.get_running_loop().create_future()

    def receive(body: tuple[str, bytes]) -> None:
        if not finished.done():
            finished.set_result(body)

    running = _native.Command(Bridge.current().mailbox, description, receive)
    text, output = await Job(finished, running.stop).wait()
    end: dict[str, Any] = json.loads(text)
    if (error := end.get("error")) is not None:
        raise OSError(error)
    return CommandResult(
        output=bytes(output),
        code=end["exit"].get("code"),
        signal=end["exit"].get("signal"),
        receipt=Receipt._from_json(end["receipt"]),
        missed_bytes=end["missed_bytes"],
    )
