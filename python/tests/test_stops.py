"""A stop during each kind of work, in each way, with its receipt."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from allstop import Agent, Model, Reply, RunFailed, Stopped, ToolCx, exec, receipt_of, tool
from support import LIMIT_S, asked, begun, calls, cancel, hangs, is_alive, receipt_of_task, wait_until


def test_cancel_during_an_async_tool() -> None:
    ended = []

    @tool
    async def work(cx: ToolCx) -> None:
        cx.output("begun")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    async def main() -> None:
        receipt = await cancel(await begun(Agent(calls("work"), tools=[work]).start("go")))
        [item] = receipt.items
        assert (item.kind, item.name, item.state, item.how) == ("tool_call", "work", "unknown", "dropped")
        assert receipt.quiet and receipt.cause.kind == "user" and receipt.cause.detail == "asyncio cancel"
        assert receipt.conversation == "unchanged"
        # The task had really ended when the receipt was made.
        assert ended == ["cleaned up"]

    asyncio.run(main())


def test_cancelled_read_only_tool_is_stopped_with_proof() -> None:
    @tool(effect="read_only")
    async def work(cx: ToolCx) -> None:
        cx.output("begun")
        await asyncio.Event().wait()

    async def main() -> None:
        receipt = await cancel(await begun(Agent(calls("work"), tools=[work]).start("go")))
        [item] = receipt.items
        assert (item.state, item.how, item.evidence.verified) == ("stopped", "dropped", "task_ended")
        assert item.after_ms is not None and receipt.quiet_after_ms is not None
        assert str(receipt).startswith("Turn 1 stopped by python (asyncio cancel) in ")

    asyncio.run(main())


def test_task_that_ignores_the_cancellation_is_unreachable() -> None:
    release = None

    @tool
    async def work(cx: ToolCx) -> None:
        cx.output("begun")
        nonlocal release
        release = asyncio.Event()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass

    async def main() -> None:
        receipt = await cancel(await begun(Agent(calls("work"), tools=[work], grace=0.05).start("go")))
        [item] = receipt.items
        assert (item.state, item.why) == ("unreachable", "not_confirmed")
        assert not receipt.quiet and not receipt.cancel_observed
        assert release is not None
        release.set()

    asyncio.run(main())


@pytest.mark.parametrize("waits", ["sleep", "checkpoint"])
def test_cancel_during_a_blocking_tool(waits: str) -> None:
    @tool
    def work(cx: ToolCx) -> None:
        cx.output("begun")
        if waits == "sleep":
            cx.sleep(600)
        while True:
            cx.checkpoint("round")
            time.sleep(0.001)

    async def main() -> None:
        receipt = await cancel(await begun(Agent(calls("work"), tools=[work]).start("go")))
        [item] = receipt.items
        expected = "sleep" if waits == "sleep" else "round"
        assert (item.state, item.how, item.evidence.observed_at) == ("stopped", "acknowledged", expected)
        assert item.evidence.verified == "thread_ended" and receipt.quiet

    asyncio.run(main())


def test_thread_that_cannot_be_stopped_is_named() -> None:
    release = threading.Event()

    @tool
    def work(cx: ToolCx) -> None:
        cx.output("begun")
        release.wait(LIMIT_S)

    async def main() -> None:
        receipt = await cancel(await begun(Agent(calls("work"), tools=[work], grace=0.05).start("go")))
        [item] = receipt.items
        [thread] = [one for one in threading.enumerate() if one.name.startswith("allstop-work-")]
        assert (item.state, item.why) == ("still_running", "blocking_thread")
        assert item.note == f"the thread `{thread.name}` cannot be forced; it never delays the exit"
        assert not receipt.quiet and str(receipt).endswith("but 1 of 1 still runs.")
        release.set()
        assert wait_until(lambda: not thread.is_alive())

    asyncio.run(main())


def test_cancel_during_a_model_call() -> None:
    async def main() -> None:
        receipt = await cancel(await asked(Agent(hangs()).start("hello")))
        [item] = receipt.items
        assert (item.kind, item.state) == ("model_call", "stopped") and receipt.quiet
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "allstop-model"]

    asyncio.run(main())


def test_model_that_ignores_the_cancellation_is_unreachable() -> None:
    async def main() -> None:
        entered, release = asyncio.Event(), asyncio.Event()

        async def answer(_request: object) -> str:
            entered.set()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    pass
            return "late"

        run = Agent(Model.from_function(answer), grace=0.05).start("hello")
        # The event of the step comes before the function begins.
        await asyncio.wait_for(entered.wait(), LIMIT_S)
        receipt = await cancel(run)
        assert [item.state for item in receipt.items] == ["unreachable"] and not receipt.quiet
        release.set()

    asyncio.run(main())


def test_second_cancel_ends_the_grace() -> None:
    release = threading.Event()

    @tool
    def work(cx: ToolCx) -> None:
        cx.output("begun")
        release.wait(LIMIT_S)

    async def main() -> None:
        run = await begun(Agent(calls("work"), tools=[work], grace=600).start("go"))

        async def wait() -> None:
            await run

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        receipt = await receipt_of_task(task)
        assert [item.state for item in receipt.items] == ["still_running"]

    try:
        asyncio.run(main())
    finally:
        release.set()


def test_timeout_has_the_receipt() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError) as raised:
            async with asyncio.timeout(0.05):
                await Agent(hangs()).run("hello")
        receipt = receipt_of(raised.value)
        assert receipt is not None and receipt.quiet
        with pytest.raises(TimeoutError) as raised:
            await asyncio.wait_for(Agent(hangs()).run("hello"), 0.05)
        assert receipt_of(raised.value) is not None

    asyncio.run(main())


def test_task_group_stops_its_runs() -> None:
    receipts = []

    async def one(agent: Agent) -> None:
        try:
            await agent.run("hello")
        except asyncio.CancelledError as error:
            receipts.append(receipt_of(error))
            raise

    async def main() -> None:
        asked = asyncio.Semaphore(0)
        agent = Agent(hangs(asked))
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(one(agent))
                group.create_task(one(agent))
                for _ in range(2):
                    await asyncio.wait_for(asked.acquire(), LIMIT_S)
                raise ValueError("the program failed")
        assert len(receipts) == 2 and all(receipt is not None and receipt.quiet for receipt in receipts)

    asyncio.run(main())


def test_event_stops_a_run() -> None:
    async def main() -> None:
        event, asked = asyncio.Event(), asyncio.Semaphore(0)
        task = asyncio.create_task(Agent(hangs(asked)).run_with_cancel(event, "hello"))
        await asyncio.wait_for(asked.acquire(), LIMIT_S)
        event.set()
        with pytest.raises(Stopped) as stopped:
            await task
        assert stopped.value.receipt.cause.detail == "event" and stopped.value.receipt.quiet
        assert str(await Agent(calls("x")).run_with_cancel(asyncio.Event(), "hello")) == "done"
        with pytest.raises(TypeError, match="asyncio.Event"):
            await Agent(hangs()).run_with_cancel(threading.Event(), "hello")  # type: ignore[arg-type]

    asyncio.run(main())


def test_stop_returns_the_receipt_of_the_run() -> None:
    async def main() -> None:
        run = await asked(Agent(hangs()).start("hello"))
        receipt = await run.stop()
        with pytest.raises(Stopped) as stopped:
            await run
        assert stopped.value.receipt.stop_id == receipt.stop_id
        late = await run.stop()
        assert late.outcome == "already_ended" and late.items == ()

    asyncio.run(main())


def test_run_timeout_is_a_deadline() -> None:
    async def main() -> None:
        with pytest.raises(Stopped) as stopped:
            await Agent(hangs(), run_timeout=0.05).run("hello")
        assert stopped.value.receipt.cause.kind == "deadline"

    asyncio.run(main())


def test_cancelled_call_leaves_the_turn() -> None:
    @tool
    async def work(cx: ToolCx) -> None:
        cx.output("begun")
        await asyncio.Event().wait()

    async def main() -> None:
        run = Agent(calls("work"), tools=[work]).start("go")
        call = await run.events().next_call()
        assert call is not None and not run.cancel_call("call_x")
        assert run.cancel_call(call) and not run.cancel_call(call)
        assert str(await run) == "done"

    asyncio.run(main())


def test_dropped_run_is_stopped() -> None:
    ended = threading.Event()

    @tool
    async def work(cx: ToolCx) -> None:
        cx.output("begun")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def main() -> None:
        run = await begun(Agent(calls("work"), tools=[work]).start("go"))
        del run
        async with asyncio.timeout(LIMIT_S):
            while not ended.is_set():
                await asyncio.sleep(0.001)

    asyncio.run(main())


def test_failures_are_no_stops() -> None:
    async def fails(_request: object) -> str:
        raise ValueError("no model today")

    async def main() -> None:
        with pytest.raises(RunFailed, match="no model today") as failed:
            await Agent(Model.from_function(fails)).run("hello")
        assert failed.value.reason == "error"
        endless = Model.from_function(lambda _request: Reply(calls=[("work", {})]))
        with pytest.raises(RunFailed) as failed:
            await Agent(endless, tools=[tool(name="work")(lambda: "worked")], max_steps=2).run("hello")
        assert failed.value.reason == "max_steps_reached"

    asyncio.run(main())


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_second_cancel_reaches_the_task_of_the_tool(turns: int) -> None:
    running = 0

    @tool
    async def work(cx: ToolCx) -> None:
        nonlocal running
        running += 1
        cx.output("begun")
        try:
            await asyncio.Event().wait()
        finally:
            running -= 1

    async def main() -> None:
        agent = Agent(calls("work"), tools=[work], grace=600)
        for _ in range(50):
            run = await begun(agent.start("go"))
            task = asyncio.create_task(run._wait())
            await asyncio.sleep(0)
            task.cancel()
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await receipt_of_task(task)
        async with asyncio.timeout(LIMIT_S):
            while running:
                await asyncio.sleep(0.001)

    asyncio.run(main())


def test_second_cancel_ends_the_command_of_the_tool(tmp_path: Path) -> None:
    begun = asyncio.Semaphore(0)

    @tool
    async def work() -> None:
        begun.release()
        await exec(["sh", "-c", "echo $$ >> pids; exec sleep 600"], cwd=tmp_path)

    async def main() -> None:
        agent = Agent(calls("work"), tools=[work])
        for _ in range(10):
            task = asyncio.create_task(agent.run("go"))
            await asyncio.wait_for(begun.acquire(), LIMIT_S)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            await receipt_of_task(task)
        async with asyncio.timeout(LIMIT_S):
            while [one for one in asyncio.all_tasks() if one.get_name().startswith("allstop-work-")]:
                await asyncio.sleep(0.005)

    asyncio.run(main())
    pids = tmp_path / "pids"
    for pid in pids.read_text().split() if pids.exists() else []:
        assert not is_alive(int(pid))


def test_each_of_many_cancels_keeps_the_receipt() -> None:
    @tool
    async def work(cx: ToolCx) -> None:
        cx.output("begun")
        await asyncio.Event().wait()

    async def main() -> None:
        agent = Agent(calls("work"), tools=[work])
        for _ in range(50):
            run = await begun(agent.start("go"))
            task = asyncio.create_task(run._wait())
            await asyncio.sleep(0)
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
            assert (await receipt_of_task(task)).items

    asyncio.run(main())


def test_failure_of_a_model_has_the_exception_as_cause() -> None:
    class Refused(Exception):
        """An exception of the program."""

    async def fails(_request: object) -> str:
        raise Refused("no model today")

    async def main() -> None:
        agent = Agent(Model.from_function(fails))
        with pytest.raises(RunFailed) as failed:
            await agent.run("hello")
        assert isinstance(failed.value.__cause__, Refused)
        async with agent.session() as session:
            with pytest.raises(RunFailed) as failed:
                await session.run("hello")
        assert isinstance(failed.value.__cause__, Refused)
        with pytest.raises(RunFailed, match="a text or a `Reply`") as failed:
            await Agent(Model.from_function(lambda _request: 5)).run("hello")  # type: ignore[arg-type,return-value]

    asyncio.run(main())


def test_receipts_are_hashable() -> None:
    async def main() -> None:
        receipt = await cancel(await asked(Agent(hangs()).start("hello")))
        assert receipt in {receipt} and receipt.items[0] in set(receipt.items)

    asyncio.run(main())
