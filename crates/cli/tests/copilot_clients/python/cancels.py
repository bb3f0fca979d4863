"""Cancellation of one call: its siblings and the turn continue."""

import asyncio

from support import long_shells, opened, scenario, until


async def cancel(watched, call):
    return await watched.request("allstop.cancelToolCall", toolCallId=call)


@scenario
async def cancel_one_of_three():
    async with opened() as watched:
        handlers = watched.handlers
        waiting = asyncio.create_task(watched.say("wait for three"))
        await handlers.started_all(3)
        call = handlers.started["b"]
        first = await cancel(watched, call)
        assert first["cancelled"] is True, first
        items = first["receipt"]["items"]
        assert [item["id"] for item in items] == [call], items
        await until("the cancellation of its handler", lambda: "b" in handlers.cancelled)
        for again in (await cancel(watched, call), await cancel(watched, "call_that_never_was")):
            assert again["cancelled"] is False, again
        assert list(handlers.cancelled) == ["b"], handlers.cancelled
        assert watched.types().count("tool.execution_complete") == 1
        handlers.released.set()
        assert await waiting == "Waited."
        outcomes = [data.success for data in watched.of("tool.execution_complete")]
        assert sorted(outcomes) == [False, True, True], outcomes


@scenario
async def two_cancels_of_one_call_count_once():
    async with opened() as watched:
        waiting = asyncio.create_task(watched.say("wait for three"))
        await watched.handlers.started_all(3)
        call = watched.handlers.started["b"]
        answers = await asyncio.gather(*(cancel(watched, call) for _ in range(4)))
        assert sorted(answer["cancelled"] for answer in answers) == [False, False, False, True], answers
        watched.handlers.released.set()
        assert await waiting == "Waited."
        assert (await cancel(watched, call))["cancelled"] is False


@scenario
async def cancel_of_a_shell_in_the_foreground():
    async with opened() as watched:
        waiting = asyncio.create_task(watched.say("run a shell and wait"))
        await watched.handlers.started_all(2)
        await until("the shell", long_shells)
        [shell] = [data.tool_call_id for data in watched.of("tool.execution_start") if data.tool_name == "bash"]
        first = await cancel(watched, shell)
        assert first["cancelled"] is True and first["receipt"]["quiet"] is True, first
        assert not long_shells(), "the shell still runs behind the receipt"
        assert (await cancel(watched, shell))["cancelled"] is False
        assert not watched.handlers.cancelled, watched.handlers.cancelled
        watched.handlers.released.set()
        assert await waiting == "Ran and waited."
        outcomes = {data.tool_call_id: data.success for data in watched.of("tool.execution_complete")}
        assert outcomes.pop(shell) is False and list(outcomes.values()) == [True, True], outcomes
