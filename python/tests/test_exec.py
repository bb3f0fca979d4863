"""Commands: their output, their end, and the receipt of their process tree."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from allstop import CommandResult, exec, receipt_of
from support import LIMIT_S, TREE_PROOF, cancel, is_alive, wait_until


def run(*command: str) -> CommandResult:
    return asyncio.run(exec(command))


def test_output_and_exit_code() -> None:
    result = run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (result.text, result.code, result.signal, result.missed_bytes) == ("out\nerr\n", 3, None, 0)
    assert result.receipt.quiet
    assert run("sh", "-c", "kill -9 $$").signal == 9


def test_environment_and_folder(tmp_path: Path) -> None:
    result = asyncio.run(exec(["sh", "-c", 'echo "$PLACE"; pwd'], cwd=tmp_path, env={"PLACE": "Lima"}))
    assert result.text == f"Lima\n{tmp_path.resolve()}\n"


def test_missing_program_is_an_error() -> None:
    with pytest.raises(OSError, match="no-such-program"):
        run("no-such-program")


def test_descendant_is_stopped_at_the_end_of_its_command() -> None:
    result = run("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
    [item] = result.receipt.items
    assert (item.kind, item.state, result.receipt.quiet) == ("process", "stopped", True)
    assert wait_until(lambda: not is_alive(int(result.text)))


def test_cancel_leaves_no_process(tmp_path: Path) -> None:
    async def main() -> None:
        script = "trap '' TERM; sleep 600 & echo $$ $! > pids; wait; sleep 600"
        pids = tmp_path / "pids"
        task = asyncio.create_task(exec(["sh", "-c", script], cwd=tmp_path, grace=0.05))
        async with asyncio.timeout(LIMIT_S):
            while not (pids.exists() and pids.read_text()):
                await asyncio.sleep(0.005)
        receipt = await cancel(task)
        [item] = receipt.items
        assert (item.kind, item.name, item.state, item.how) == ("process", "sh", "stopped", "sigkill")
        assert item.evidence.verified == TREE_PROOF and receipt.quiet
        for pid in pids.read_text().split():
            assert wait_until(lambda pid=pid: not is_alive(int(pid)))  # type: ignore[misc]

    asyncio.run(main())


def test_timeout_has_the_receipt() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError) as raised:
            async with asyncio.timeout(0.05):
                await exec(["sleep", "600"])
        receipt = receipt_of(raised.value)
        assert receipt is not None and receipt.quiet

    asyncio.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="keepers need Linux")
def test_process_in_a_new_session_without_environment_is_stopped(tmp_path: Path) -> None:
    async def main() -> None:
        script = "env -i setsid sh -c 'echo $$ > pid; exec sleep 600' & wait"
        pid = tmp_path / "pid"
        task = asyncio.create_task(exec(["sh", "-c", script], cwd=tmp_path, grace=0.05))
        async with asyncio.timeout(LIMIT_S):
            while not (pid.exists() and pid.read_text()):
                await asyncio.sleep(0.005)
        receipt = await cancel(task)
        [item] = receipt.items
        assert (item.state, item.containment, item.evidence.verified) == ("stopped", "keeper", "process_tree_empty")
        assert item.evidence.may_miss is None and receipt.quiet
        assert wait_until(lambda: not is_alive(int(pid.read_text())))

    asyncio.run(main())


def test_missing_program_of_the_package_leaves_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allstop._bridge.keeper_program", lambda: None)
    result = run("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
    [item] = result.receipt.items
    assert (item.containment, item.evidence.verified) == ("group_and_marker", "process_group_empty")
    assert item.evidence.may_miss is not None


def test_long_output_is_truncated() -> None:
    length = 64 * 1024 * 1024
    result = run("head", "-c", str(length + 5), "/dev/zero")
    assert (len(result.output), result.missed_bytes, result.truncated) == (length, 5, True)
    assert not run("true").truncated


@pytest.mark.parametrize(
    ("command", "options", "error"),
    [
        ([], {}, ValueError),
        ([""], {}, ValueError),
        ("ls", {}, TypeError),
        (["ls"], {"env": {"A=": "b"}}, ValueError),
        (["ls"], {"env": {"A": "\0"}}, ValueError),
        (["ls"], {"grace": float("nan")}, ValueError),
    ],
)
def test_wrong_command_is_an_error(command: list[str], options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="a command|variable|`grace`"):
        asyncio.run(exec(command, **options))
