"""Gaps that were measured in the official runtime, each a scenario named after it."""

import asyncio

from support import SOON, Watched, client, long_shells, opened, scenario, until


@scenario
async def gap_abort_with_only_background_shell_stops_it():
    """There, the answer is a success and the shell lives."""
    async with opened() as watched:
        await watched.start_long_shell()
        answer = await watched.request("session.abort")
        assert not long_shells(), "the shell runs behind the answer"
        receipt = answer["receipt"]
        assert (answer["success"], receipt["quiet"]) == (True, True), answer
        items = [(item["kind"], item["state"]) for item in receipt["items"]]
        assert items == [("background", "stopped")], receipt


@scenario
async def gap_idle_follows_an_abort_of_background_work_and_the_wait_ends():
    """There, no idle event comes, and the wait hangs."""
    async with opened() as watched:
        waiting = asyncio.create_task(watched.say("start a long shell"))
        await watched.until("assistant.idle")
        await until("the shell", long_shells)
        assert not waiting.done() and "session.idle" not in watched.types()
        await watched.session.abort()
        # The turn was completed before.
        assert await asyncio.wait_for(waiting, SOON) == "Started."
        await watched.until("session.idle")
        assert not long_shells()
        tasks = await watched.session.rpc.tasks.list()
        assert [task.status.value for task in tasks.tasks] == ["cancelled"], tasks


@scenario
async def gap_abort_of_a_turn_leaves_unrelated_shell():
    """There, the shell is killed."""
    async with opened() as watched:
        await watched.start_long_shell()
        shells = long_shells()
        await watched.wait_for_one()
        await watched.session.abort()
        assert shells and long_shells() == shells, "an abort of a turn has ended a shell that it does not cover"
        await watched.session.abort()
        await until("the end of the shell", lambda: not long_shells())


@scenario
async def gap_aborted_wait_has_its_own_result():
    """There, it resolves like a completed one."""
    async with opened() as watched:
        waiting = asyncio.create_task(watched.say("wait for one"))
        await watched.handlers.started_all(1)
        by_hand = asyncio.create_task(watched.request("session.sendAndWait", prompt="hello"))
        await watched.session.abort()
        try:
            await waiting
        except RuntimeError as error:
            assert "abort" in str(error).lower(), error
        else:
            raise AssertionError("an aborted wait looks like a completed one")
        # The message behind it was not aborted.
        answer = await by_hand
        assert (answer["aborted"], answer["outcome"]) == (False, "completed"), answer


@scenario
async def gap_aborted_call_has_its_completion_event():
    """There, an aborted external call has none."""
    async with opened() as watched:
        await watched.session.send("wait for three")
        await watched.handlers.started_all(3)
        await watched.session.abort()
        started = [data.tool_call_id for data in watched.of("tool.execution_start")]
        completed = watched.of("tool.execution_complete")
        # They have come before the answer of the abort.
        assert sorted(data.tool_call_id for data in completed) == sorted(started), completed
        # A program does not confirm the end of its handlers.
        assert [(data.success, data.error.code) for data in completed] == [(False, "unknown")] * 3, completed
        requested = sorted(data.request_id for data in watched.of("external_tool.requested"))
        ended = sorted(data.request_id for data in watched.of("external_tool.completed"))
        assert len(requested) == 3 and requested == ended, (requested, ended)
        history = await watched.history()
        # The conversation keeps the calls.
        calls = [data.tool_call_id for kind, data in history if kind == "tool.execution_start"]
        results = [data.tool_call_id for kind, data in history if kind == "tool.execution_complete"]
        assert len(calls) == 3 and sorted(calls) == sorted(results), history


@scenario
async def gap_turn_can_be_stopped_after_a_timed_out_wait():
    """There, the turn runs on, and the next message queues behind it."""
    async with opened() as watched:
        await watched.start_long_shell()
        answer = await watched.request("session.sendAndWait", prompt="wait for one", timeoutMs=300)
        assert (answer["outcome"], answer["turnRuns"], answer["aborted"]) == ("timed_out", True, False), answer
        assert len(answer["background"]) == 1, answer
        # The end of the wait has stopped nothing.
        await watched.handlers.started_all(1)
        assert not watched.handlers.cancelled and long_shells()
        await watched.session.abort()
        await until("the cancellation of the handler", lambda: watched.handlers.cancelled)
        answer = await watched.request("session.sendAndWait", prompt="hello again", timeoutMs=300)
        # It has run, and the shell still does.
        assert (answer["outcome"], answer["turnRuns"]) == ("timed_out", False), answer
        assert answer["response"]["data"]["content"] == "Hello again.", answer
        assert "Hello again." in [data.content for data in watched.of("assistant.message")]
        assert long_shells()


@scenario
async def gap_no_shell_survives_stop():
    """There, a detached shell does."""
    server = client()
    await server.start()
    watched = await Watched(server).create()
    await watched.start_long_shell()
    assert await watched.say_without_wait("start a daemon") == "It is a daemon."
    await until("the shell and the daemon", lambda: len(long_shells()) == 2)
    await server.stop()
    assert not long_shells(), "a shell has survived the stop"
