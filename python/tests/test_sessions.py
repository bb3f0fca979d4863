"""Sessions: conversations, waits, stops and stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from allstop import Agent, Events, Model, ModelRequest, Reply, Run, Session, Stopped, receipt_of, tool
from support import CONTAINMENT, LIMIT_S, TREE_PROOF, calls, cancel, hangs, is_alive, receipt_of_task, wait_until


def counts() -> Model:
    return Model.from_function(lambda request: f"{len(request.messages)} messages")


def test_session_continues_its_conversation(tmp_path: Path) -> None:
    async def main() -> None:
        agent, store = Agent(counts()), str(tmp_path / "store.db")
        async with agent.session(id="one", store=store) as session:
            assert str(await session.send("one")) == "1 messages"
            assert str(await session.run("two")) == "3 messages"
        async with agent.session(id="one", store=store) as session:
            result = await session.send_and_wait("three")
            assert str(result.answer) == "5 messages" and not result.timed_out
            roles = [message["role"] for message in await session.history()]
            assert session.id == "one" and roles == ["user", "assistant"] * 3

    asyncio.run(main())


def test_send_and_wait_stops_nothing() -> None:
    async def main() -> None:
        async with Agent(hangs()).session(follow_up="enqueue") as session:
            result = await session.send_and_wait("hello", timeout=0.05)
            assert result.timed_out and result.answer is None
            waiting = session.send("and then?")
            receipt = await session.stop()
            assert receipt.quiet and [item.kind for item in receipt.items] == ["model_call"]
            await session.stop("session")
            with pytest.raises(Stopped):
                await waiting

    asyncio.run(main())


def test_second_message_is_refused() -> None:
    async def main() -> None:
        async with Agent(hangs()).session() as session:
            message = session.send("one")
            with pytest.raises(RuntimeError, match="a turn is running"):
                session.send("two")
            with pytest.raises(RuntimeError, match="a turn is running"):
                await session.send_and_wait("two")
            replaced = session.send("three", follow_up="replace")
            with pytest.raises(Stopped) as stopped:
                await message
            assert stopped.value.receipt.cause.kind == "superseded"
            del replaced
        with pytest.raises(RuntimeError, match="not open"):
            Agent(hangs()).session().send("hello")

    asyncio.run(main())


def test_cancelled_call_leaves_the_turn_of_a_session() -> None:
    # A repeated call whose outcome is unknown would be denied.
    @tool(effect="read_only")
    async def work() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with Agent(calls("work"), tools=[work]).session() as session:
            events = session.events()
            message = session.send("go")
            call = await events.next_call()
            assert call is not None and not session.cancel_call("call_x")
            assert session.cancel_call(call) and not session.cancel_call(call)
            assert str(await message) == "done"
            events = session.events()
            message = session.send("go")
            call = await events.next_call()
            assert call is not None
            receipt = await session.stop_call(call)
            assert receipt.extent == "call" and receipt.quiet
            assert str(await message) == "done"
            missing = await session.stop_call("call_x")
            assert missing.outcome == "not_found"

    asyncio.run(main())


def test_events_end_with_the_session() -> None:
    async def main() -> None:
        async with Agent(counts()).session() as session:
            events = session.events()
            await session.run("one")
        types = [event.type async for event in events]
        assert types[0] == "turn_started" and "assistant_idle" in types and "session_idle" in types

    asyncio.run(main())


def test_cancelled_wait_for_an_event_loses_none() -> None:
    async def main() -> None:
        async with Agent(counts()).session() as session:
            events = session.events()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(events)
            await session.run("one")
            assert (await anext(events)).type == "turn_started"

    asyncio.run(main())


def test_cancel_during_a_shell(tmp_path: Path) -> None:
    def answer(request: ModelRequest) -> str | Reply:
        command = "sleep 600 & echo $! > child; wait"
        return Reply(calls=[("shell", {"command": command})]) if request.user_text == "go" else "done"

    child = tmp_path / "child"

    async def main() -> None:
        async with Agent(Model.from_function(answer)).session(local_tools=str(tmp_path)) as session:
            events = session.events()
            task = asyncio.create_task(session.run("go"))
            await events.next_call()
            async with asyncio.timeout(LIMIT_S):
                while not (child.exists() and child.read_text()):
                    await asyncio.sleep(0.005)
            pid = int(child.read_text())
            receipt = await cancel(task)
            [item] = receipt.items
            assert (item.kind, item.name, item.state) == ("tool_call", "shell", "stopped")
            assert item.evidence.verified == TREE_PROOF and item.containment == CONTAINMENT
            assert receipt.quiet and wait_until(lambda: not is_alive(pid))
            assert str(await session.run("and now?")) == "done"

    asyncio.run(main())


@pytest.mark.parametrize("cancellations", [1, 2, 5])
def test_cancelled_body_waits_for_the_close(cancellations: int) -> None:
    ended = []
    begun = asyncio.Event()

    @tool
    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def main() -> None:
        sessions = []

        async def body() -> None:
            async with Agent(calls("work"), tools=[work]).session() as session:
                sessions.append(session)
                events = session.events()
                session.send("go")
                await events.next_call()
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        await asyncio.wait_for(begun.wait(), LIMIT_S)
        for _ in range(cancellations):
            task.cancel()
            await asyncio.sleep(0)
        receipt = await receipt_of_task(task)
        assert receipt.extent == "session" and ended == [True]
        with pytest.raises(RuntimeError, match="closed"):
            sessions[0].send("hello")

    asyncio.run(main())


def test_cancelled_close_has_the_receipt() -> None:
    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(asyncio.CancelledError) as raised:
            async with Agent(hangs()).session() as session:
                session.send("hello")
                task.cancel()
        assert receipt_of(raised.value) is not None
        task.uncancel()

    asyncio.run(main())


def test_cancelled_open_leaves_the_session_closed(tmp_path: Path) -> None:
    async def main() -> None:
        agent, store = Agent(counts()), str(tmp_path / "store.db")
        for turns in range(5):
            task = asyncio.create_task(agent.session(id="one", store=store).open())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with agent.session(id="one", store=store) as session:
                await session.run("hello")

    asyncio.run(main())


def test_other_event_loop_is_an_error() -> None:
    async def begin() -> tuple[Run, Events, Session]:
        agent = Agent(hangs())
        run = agent.start("hello")
        return run, run.events(), await agent.session().open()

    run, events, session = asyncio.run(begin())

    async def use() -> None:
        for work in (run, anext(events), session.run("hello"), session.send_and_wait("hello"), session.close()):
            with pytest.raises(RuntimeError, match="another event loop"):
                async with asyncio.timeout(LIMIT_S):
                    await work
        for function in (run.stop, run.events().next_call, session.stop, session.events):
            with pytest.raises(RuntimeError, match="another event loop"):
                result = function()  # type: ignore[operator]
                if asyncio.iscoroutine(result):
                    await result

    asyncio.run(use())
    assert session.id


def test_second_reader_of_events_is_an_error() -> None:
    async def main() -> None:
        events = Agent(hangs()).start("hello").events()
        readers = [asyncio.create_task(events.next_call()) for _ in range(2)]
        done, [first] = await asyncio.wait(readers, timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        with pytest.raises(RuntimeError, match="another task"):
            await done.pop()
        first.cancel()

    asyncio.run(main())
