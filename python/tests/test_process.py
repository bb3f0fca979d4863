"""The process: Ctrl-C, the exit of the interpreter, forks."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from support import LIMIT_S, is_alive, wait_until


def python(program: str, **options: object) -> subprocess.Popen[str]:
    """Starts a program as a process."""
    command = [sys.executable, "-P", "-c", textwrap.dedent(program)]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]


def test_ctrl_c_stops_a_run_and_raises_with_the_receipt() -> None:
    program = """
        import asyncio
        from allstop import Agent, Model
        async def hangs(request):
            print("ready", flush=True)
            await asyncio.sleep(600)
        try:
            Agent(Model.from_function(hangs)).run_sync("hello")
        except KeyboardInterrupt as error:
            print(error.receipt.quiet, error.receipt.items[0].kind)
        """
    process = python(program)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert (output, process.returncode) == ("True model_call\n", 0)


def test_second_ctrl_c_ends_the_grace() -> None:
    program = """
        import threading
        from allstop import Agent, Model, Reply, ToolCx, tool
        @tool
        def work(cx: ToolCx):
            print("ready", flush=True)
            while not cx.stopped:
                threading.Event().wait(0.005)
            print("stopping", flush=True)
            threading.Event().wait(600)
        model = Model.from_function(lambda request: Reply(calls=[("work", {})]))
        try:
            Agent(model, tools=[work], grace=600).run_sync("hello")
        except KeyboardInterrupt as error:
            print(error.receipt.items[0].state)
        """
    process = python(program)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "stopping\n"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert (output, process.returncode) == ("still_running\n", 0)


def test_exit_of_the_interpreter_stops_active_work(tmp_path: Path) -> None:
    program = f"""
        import asyncio, threading
        from allstop import exec
        def main():
            asyncio.run(exec(["sh", "-c", "echo $$ > pid; sleep 600"], cwd={str(tmp_path)!r}))
        threading.Thread(target=main, daemon=True).start()
        import pathlib, time
        pid = pathlib.Path({str(tmp_path)!r}) / "pid"
        while not (pid.exists() and pid.read_text()):
            time.sleep(0.005)
        print("exit", flush=True)
        """
    process = python(program)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert (output, process.returncode) == ("exit\n", 0)
    assert wait_until(lambda: not is_alive(int((tmp_path / "pid").read_text())))


def test_kill_of_the_interpreter_leaves_no_process(tmp_path: Path) -> None:
    program = f"""
        import asyncio
        from allstop import exec
        script = "env -i setsid sh -c 'echo $$ > pid; exec sleep 600' & wait"
        asyncio.run(exec(["sh", "-c", script], cwd={str(tmp_path)!r}))
        """
    process = python(program)
    pid = tmp_path / "pid"
    assert wait_until(lambda: pid.exists() and bool(pid.read_text()))
    process.kill()
    process.communicate(timeout=LIMIT_S)
    gone = wait_until(lambda: not is_alive(int(pid.read_text())))
    assert gone or sys.platform != "linux"


def test_exhausted_descriptors_are_an_os_error() -> None:
    program = """
        import asyncio, resource
        from allstop import Agent, Model
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        agents = [Agent(Model.from_function(lambda request: "hello")) for _ in range(60)]
        async def main():
            try:
                for agent in agents:
                    await agent.run("hi")
            except OSError as error:
                print("share one Agent" in str(error))
            print(await agents[0].run("hi"))
        asyncio.run(main())
        """
    process = python(program, stderr=subprocess.PIPE)
    output, errors = process.communicate(timeout=LIMIT_S)
    assert (output, process.returncode) == ("True\nhello\n", 0)
    assert "panicked" not in errors


def test_exit_waits_for_no_blocking_tool() -> None:
    program = """
        import asyncio, threading
        from allstop import Agent, Model, Reply, tool
        begun = threading.Event()
        @tool
        def work():
            begun.set()
            threading.Event().wait(600)
        async def main():
            model = Model.from_function(lambda request: Reply(calls=[("work", {})]))
            run = Agent(model, tools=[work], grace=0.05).start("hello")
            await asyncio.to_thread(begun.wait)
            print((await run.stop()).items[0].state, flush=True)
        asyncio.run(main())
        """
    process = python(program)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert (output, process.returncode) == ("still_running\n", 0)


def test_forked_process_starts_another_event_loop() -> None:
    program = """
        import asyncio, os, warnings
        warnings.simplefilter("ignore")
        from allstop import Agent, Model
        agent = Agent(Model.from_function(lambda request: "hello"))
        def once():
            return str(asyncio.run(agent.run("hi")))
        async def main():
            assert str(await agent.run("hi")) == "hello"
            child = os.fork()
            if child == 0:
                try:
                    agent.start("hi")
                except RuntimeError as error:
                    os._exit(0 if "no running event loop" in str(error) else 2)
                os._exit(1)
            print("same loop:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        asyncio.run(main())
        child = os.fork()
        if child == 0:
            os._exit(0 if once() == "hello" else 1)
        print("other loop:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    process = python(program)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert output == "same loop: 0\nother loop: 0\n"
