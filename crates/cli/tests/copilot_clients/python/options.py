"""Options of a session, and what the model gets of them."""

import pathlib

from copilot import CopilotClient, RuntimeConnection
from copilot.tools import Tool, ToolResult
from model_server import ModelServer, Reply
from support import ARGUMENTS, client, opened, scenario


async def asked(prompt="hello", **options):
    """The model behind one message of a session with these options."""
    async with ModelServer({"hello": [Reply("Hello.")]}) as model:
        async with opened(**model.options(), **options) as watched:
            assert await watched.say(prompt) == "Hello."
        return model


@scenario
async def system_message_is_appended_or_replaced():
    pathlib.Path("brief.toml").write_text('system_prompt = "Be brief."\n')

    async def prompt(mode):
        server = client(["--config", "brief.toml"])
        return (await asked(server=server, system_message={"mode": mode, "content": "Speak of cats."})).system_prompt()

    appended = await prompt("append")
    assert appended.startswith("Be brief.") and appended.endswith("Speak of cats."), appended
    assert await prompt("replace") == "Speak of cats."


@scenario
async def excluded_tools_are_not_offered():
    everything = (await asked()).tools()
    assert {"bash", "view", "edit", "create", "wait", "echo"} <= set(everything), everything
    fewer = (await asked(excluded_tools=["bash", "edit", "echo"])).tools()
    assert set(everything) - set(fewer) == {"bash", "edit", "echo"}, fewer
    own = (await asked(available_tools=["custom:*"])).tools()
    assert sorted(own) == ["echo", "wait"], own


@scenario
async def attachments_are_named_to_the_model():
    path = pathlib.Path("attached.txt").absolute()
    path.write_text("It is about cats.\n")
    attachments = [
        {"type": "file", "path": str(path)},
        {"type": "directory", "path": str(path.parent)},
        {"type": "selection", "filePath": str(path), "displayName": "attached.txt", "text": "about cats"},
    ]
    async with ModelServer({"read": [Reply("", [("view", {"path": str(path)})]), Reply("Read.")]}) as model:
        async with opened(**model.options()) as watched:
            answer = await watched.session.send_and_wait("read them", attachments=attachments)
            assert answer.data.content == "Read.", answer
        *_, user, _, result = model.requests[-1]["messages"]
    assert user["role"] == "user" and user["content"].count(str(path.parent)) == 3, user
    assert user["content"].endswith("about cats"), user
    assert result["role"] == "tool" and "It is about cats." in result["content"], result


@scenario
async def own_tool_takes_the_place_of_a_built_in_one():
    def view(invocation):
        return ToolResult(text_result_for_llm=f"seen by the client: {invocation.arguments['path']}")

    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    own = Tool("view", "Sees a file.", view, parameters=schema, overrides_built_in_tool=True)
    replies = {"see": [Reply("", [("view", {"path": "a.txt"})]), Reply("Seen.")]}
    async with ModelServer(replies) as model:
        async with opened(tools=[own], **model.options()) as watched:
            assert await watched.say("see a file") == "Seen."
    assert model.tools().count("view") == 1, model.tools()
    assert model.requests[-1]["messages"][-1]["content"] == "seen by the client: a.txt", model.requests[-1]


@scenario
async def user_is_asked_and_answers():
    questions = []

    def answer(request, invocation):
        questions.append((request["question"], request["choices"]))
        return {"answer": "blue", "wasFreeform": False}

    ask = ("ask_user", {"question": "Which colour?", "choices": ["red", "blue"]})
    async with ModelServer({"paint": [Reply("", [ask]), Reply("Painted.")]}) as model:
        async with opened(on_user_input_request=answer, **model.options()) as watched:
            assert await watched.say("paint it") == "Painted."
    assert questions == [("Which colour?", ["red", "blue"])], questions
    assert model.requests[-1]["messages"][-1]["content"] == "blue", model.requests[-1]


@scenario
async def client_that_leaves_everything_out():
    """Its mode `empty` sends options that the server has to take."""
    connection = RuntimeConnection.for_stdio(args=ARGUMENTS)
    server = CopilotClient(connection=connection, mode="empty", base_directory=str(pathlib.Path.cwd()))
    async with opened(server=server, available_tools=["custom:*"]) as watched:
        assert await watched.say("hello") == "Hello."
