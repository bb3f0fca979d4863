"""The package: the example in its README, its stubs, and its binary."""

from __future__ import annotations

import ast
import subprocess
import sys
import sysconfig
from pathlib import Path

import allstop
import pytest
from allstop import _native

README = Path(__file__).parent.parent / "README.md"
HELLO_LINES_MAX = 12


def test_hello_has_twelve_lines_and_works() -> None:
    _, block, _ = README.read_text().split("```", 2)
    language, code = block.split("\n", 1)
    assert language == "python" and len(code.splitlines()) <= HELLO_LINES_MAX
    hello = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert hello.stdout == "Take sunglasses.\n"


def test_stubs_describe_the_native_module() -> None:
    stub = ast.parse((Path(allstop.__file__).parent / "_native.pyi").read_text())
    described: dict[str, set[str]] = {}
    for node in stub.body:
        if isinstance(node, ast.FunctionDef):
            described[node.name] = set()
        elif isinstance(node, ast.ClassDef):
            functions = [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
            described[node.name] = {name for name in functions if not name.startswith("__")}
    found = {
        name: {one for one in vars(value) if not one.startswith("__")} if isinstance(value, type) else set()
        for name, value in vars(_native).items()
        if not name.startswith("__")
    }
    assert described == found


def test_package_is_typed() -> None:
    assert (Path(allstop.__file__).parent / "py.typed").exists()


def test_wheel_contains_the_binary() -> None:
    binary = Path(sysconfig.get_path("scripts")) / "allstop"
    if not Path(allstop.__file__).is_relative_to(Path(sysconfig.get_path("platlib"))):
        pytest.fail("the tests need the installed wheel: `cargo xtask test`")
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert version.stdout.startswith("allstop ")
