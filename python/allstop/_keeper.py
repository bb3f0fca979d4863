"""The program that contains the process trees of commands."""

from __future__ import annotations

import functools
import os
from importlib.metadata import PackageNotFoundError, distribution


@functools.cache
def keeper_program() -> str | None:
    """Returns the path of the program `allstop` that the package has installed; `None` if the program is missing.

    A program of another version may use another protocol, so the search path is not used.
    """
    try:
        files = distribution("allstop").files or []
    except PackageNotFoundError:
        return None
    for file in files:
        if file.name == "allstop" and file.parent.name == "bin":
            program = os.path.realpath(str(file.locate()))
            if os.access(program, os.X_OK):
                return program
    return None
