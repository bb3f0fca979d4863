"""Turns that are completed or denied."""

import asyncio

from copilot.rpc import PermissionDecisionApproveOnce, PermissionDecisionReject
from support import SOON, opened, scenario


@scenario
async def send():
    async with opened() as watched:
        answer = await watched.ask("hello")
        assert answer.data.content == "Hello.", answer
        kinds = [kind for kind, _ in await watched.history()]
        assert kinds[-4:] == ["user.message", "assistant.turn_start", "assistant.message", "assistant.turn_end"], kinds
        watched.before("session.start", "user.message", "assistant.turn_start", "assistant.message", "session.idle")


@scenario
async def stream():
    async with opened(streaming=True) as watched:
        answer = await watched.ask("hello")
        pieces = [data.delta_content for data in watched.of("assistant.message_delta")]
        assert "".join(pieces) == answer.data.content, pieces


@scenario
async def three_tools():
    async with opened() as watched:
        answer = await watched.ask("echo three")
        assert answer.data.content == "All echoed.", answer
        done = watched.of("tool.execution_complete")
        assert sorted(data.result.content for data in done) == ["echo a", "echo b", "echo c"], done
        watched.before(
            "assistant.message",
            "tool.execution_start",
            "external_tool.requested",
            "external_tool.completed",
            "tool.execution_complete",
            "assistant.turn_end",
            "assistant.idle",
            "session.idle",
        )


async def answered(decision):
    """A permission question that is answered so: the kind of its result, and the completion of its call."""
    asked = []

    def ask(request, invocation):
        asked.append(getattr(request.kind, "value", request.kind))
        return decision

    async with opened(on_permission_request=ask) as watched:
        await watched.ask("touch a file")
        watched.before("permission.requested", "permission.completed", "tool.execution_complete")
    assert asked == ["shell"], asked
    [completed] = watched.of("permission.completed")
    [call] = watched.of("tool.execution_complete")
    return completed.result.kind, call


@scenario
async def permission():
    kind, call = await answered(PermissionDecisionReject(feedback="not here"))
    assert (call.success, call.error.code) == (False, "denied"), call
    assert kind == "denied-interactively-by-user", kind


@scenario
async def permission_approved():
    kind, call = await answered(PermissionDecisionApproveOnce())
    assert call.success is True and call.result.content is not None, call
    assert kind == "approved", kind


@scenario
async def hooks():
    seen = []

    async def pre(hook, invocation):
        seen.append("pre")
        if (hook.get("toolArgs") or {}).get("text") == "b":
            return {"permissionDecision": "deny", "permissionDecisionReason": "not b"}
        return {"permissionDecision": "allow"}

    async def post(hook, invocation):
        seen.append("post")

    async with opened(hooks={"on_pre_tool_use": pre, "on_post_tool_use": post}) as watched:
        await watched.ask("echo three")
        done = watched.of("tool.execution_complete")
        outcomes = sorted((data.success, data.error.message if data.error else "") for data in done)
        assert outcomes[0] == (False, "the call did not run: not b"), outcomes
        assert [success for success, _ in outcomes] == [False, True, True], outcomes
        assert seen.count("pre") == 3 and seen.count("post") == 2, seen


@scenario
async def stalled_hook():
    begun = asyncio.Event()
    # Held here: Python collects a task that only waits for an event without another reference.
    never = asyncio.Event()

    async def stall(hook, invocation):
        begun.set()
        await never.wait()

    async with opened(hooks={"on_pre_tool_use": stall}) as watched:
        await watched.session.send("echo three")
        await asyncio.wait_for(begun.wait(), SOON)
        await watched.session.abort()
        await watched.until("session.idle")
        assert await watched.say("hello again") == "Hello again."
