"""Scenarios of the official Python client for version 0.3, unmodified, against servers.

Usage: client_v0_3.py BINDING SCENARIO@URL... where BINDING is JSONRPC.
Prints a line for each scenario that has passed; the first that fails ends the program with an error.
"""

import asyncio
import json
import sys
import time
import uuid

import httpx
from a2a.client import (
    A2ACardResolver,
    AuthInterceptor,
    ClientCallContext,
    ClientConfig,
    ClientFactory,
    InMemoryContextCredentialStore,
)
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    DataPart,
    FilePart,
    FileWithBytes,
    FileWithUri,
    GetTaskPushNotificationConfigParams,
    Message,
    MessageSendConfiguration,
    Part,
    PushNotificationConfig,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TaskStatusUpdateEvent,
    TextPart,
)

RECEIPT = "https://allstop.dev/a2a/receipt/v1"
# Far more than an answer takes on a busy machine.
WAIT_S = 20.0
# Longer than the server's interval of comments in a silent stream.
SILENCE_S = 4.5


class Scenarios:
    def __init__(self, url, binding):
        self.url = url
        self.binding = binding
        self.side = httpx.AsyncClient(base_url=url)

    async def client(self, interceptors=None, **options):
        config = ClientConfig(supported_transports=[self.binding], **options)
        return await ClientFactory.connect(self.url, config, interceptors=interceptors)

    # Beside the protocol: what the test's own server knows.
    async def is_running(self, task_id):
        return (await self.side.get(f"/test/running/{task_id}")).json()

    async def open_gate(self, name):
        (await self.side.post(f"/test/gates/{name}")).raise_for_status()

    # --- scenarios ---

    async def card(self):
        """Both paths of the card lead to the interface of version 0.3."""
        for path in (None, "/.well-known/agent.json"):
            card = await A2ACardResolver(self.side, self.url).get_agent_card(path)
            assert (card.url, card.preferred_transport) == (self.url, "JSONRPC"), card
            assert card.protocol_version == "0.3.0" and card.capabilities.streaming, card
            assert [(i.url, i.transport) for i in card.additional_interfaces] == [
                (self.url, "JSONRPC")
            ], card

    async def send(self):
        async with await self.client(streaming=False) as client:
            [(task, _)] = await collect(client.send_message(message("chunks 3; complete")))
            assert task.status.state == TaskState.completed, task
            assert numbers(task.artifacts) == [1, 2, 3], task
            assert await client.get_task(TaskQueryParams(id=task.id)) == task
            assert len(task.history) == 1, task

    async def send_without_waiting(self):
        gate = uuid.uuid4().hex
        async with await self.client(streaming=False, polling=True) as client:
            [(task, _)] = await collect(client.send_message(message(f"gate {gate}; complete")))
            assert task.status.state in (TaskState.submitted, TaskState.working), task
            await self.open_gate(gate)
            await self.until(client, task.id, TaskState.completed)

    async def parts(self):
        """Content of every kind comes back as it was sent."""
        sent = message("parts; complete")
        file = FileWithBytes(bytes="aGVsbG8=", mime_type="image/png", name="ü.png")
        page = FileWithUri(uri="https://example.com/a?b=c&d=%20", mime_type="text/html")
        data = {"a": [1, 2.5, None, True, "ü\n"], "b": {}}
        text = "é\r\n\u2028\u2029\x85 " * 10_000
        for part in (
            FilePart(file=file),
            FilePart(file=page),
            DataPart(data=data),
            TextPart(text=text, metadata={"note": "text"}),
        ):
            sent.parts.append(Part(root=part))
        async with await self.client() as client:
            events = await collect(client.send_message(sent))
            [update] = [e for _, e in events if isinstance(e, TaskArtifactUpdateEvent)]
            assert update.artifact.parts == sent.parts, update
            got = await client.get_task(TaskQueryParams(id=update.task_id))
            assert got.artifacts[0].parts == sent.parts, got
            assert got.history[0].parts == sent.parts, got

    async def reply(self):
        """An agent may answer with a message. In a stream, a late message ends the task that came first."""
        async with await self.client(streaming=False) as client:
            [reply] = await collect(client.send_message(message("reply hello")))
            assert reply.parts[0].root.text == "hello" and not reply.task_id, reply
        async with await self.client() as client:
            events = await collect(client.send_message(message("reply hello")))
            if isinstance(events[-1], tuple):
                # A slow machine sends the task first.
                task, last = events[-1]
                assert last.status.state == TaskState.completed and last.final, last
                reply = task.status.message
            else:
                [reply] = events
            assert reply.parts[0].root.text == "hello", reply

    async def stream(self):
        async with await self.client() as client:
            events = await collect(client.send_message(message("chunks 50; complete")))
            task, last = events[-1]
            assert isinstance(last, TaskStatusUpdateEvent) and last.final, last
            assert last.status.state == TaskState.completed, last
            # The client adds up the chunks.
            assert numbers(task.artifacts) == list(range(1, 51)), task

    async def cancel(self):
        for last_step in ("gate never", "ignore"):
            async with await self.client() as client:
                ended = None
                async for task, event in client.send_message(message(f"chunks 5; {last_step}")):
                    if numbers(task.artifacts) == [1, 2, 3, 4, 5] and not ended:
                        assert await self.is_running(task.id)
                        ended = await client.cancel_task(cancel(task.id))
                        assert not await self.is_running(task.id), "the executor works on"
                assert ended.status.state == TaskState.canceled, ended
                assert event.status.state == TaskState.canceled and event.final, event
                receipt = ended.metadata[RECEIPT]
                assert receipt == event.metadata[RECEIPT], (receipt, event)
                assert receipt["receipt"]["quiet"] is True, receipt
                assert receipt["cause"]["detail"] == "lunch", receipt
                # A second cancel joins the first.
                assert await client.cancel_task(TaskIdParams(id=ended.id)) == ended

    async def resubscribe(self):
        """Cut off in mid-stream: the snapshot and the later events are the whole history."""
        first, last = uuid.uuid4().hex, uuid.uuid4().hex
        text = f"chunks 5; gate {first}; chunks 50; gate {last}; chunks 5; complete"
        async with await self.client() as client:
            stream = client.send_message(message(text))
            async for task, _event in stream:
                if numbers(task.artifacts) == [1, 2, 3, 4, 5]:
                    break
            await stream.aclose()
        assert await self.is_running(task.id), "a disconnect stopped the task"
        async with await self.client() as client:
            # The agent writes while the client subscribes.
            await self.open_gate(first)
            async for task, event in client.resubscribe(TaskIdParams(id=task.id)):
                if numbers(task.artifacts)[-1:] == [55]:
                    await self.open_gate(last)
            assert numbers(task.artifacts) == list(range(1, 61)), task
            assert event.status.state == TaskState.completed and event.final, event
            ended = client.resubscribe(TaskIdParams(id=task.id))
            await raises(-32004, collect(ended))

    async def silence(self):
        """A silent stream has comments, which the client ignores."""
        gate = uuid.uuid4().hex
        async with await self.client(streaming=False, polling=True) as client:
            sent = client.send_message(message(f"chunks 1; gate {gate}; complete"))
            [(task, _)] = await collect(sent)
        async with await self.client() as client:
            asyncio.get_running_loop().call_later(
                SILENCE_S, lambda: asyncio.ensure_future(self.open_gate(gate))
            )
            begin = time.monotonic()
            events = await collect(client.resubscribe(TaskIdParams(id=task.id)))
            assert time.monotonic() - begin >= SILENCE_S
            assert events[-1][0].status.state == TaskState.completed, events[-1]

    async def follow_up(self):
        async with await self.client() as client:
            events = await collect(client.send_message(message("chunks 1; ask which one?")))
            task, last = events[-1]
            assert last.status.state == TaskState.input_required and last.final, last
            assert last.status.message.parts[0].root.text == "which one?", last
            answer = message("chunks 2; complete", task_id=task.id, context_id=task.context_id)
            events = await collect(client.send_message(answer))
            assert events[-1][1].status.state == TaskState.completed, events[-1]
            got = await client.get_task(TaskQueryParams(id=task.id))
            # A chunk that is not appended begins the artifact anew.
            assert numbers(got.artifacts) == [1, 2], got
            texts = [sent.parts[0].root.text for sent in got.history]
            assert "chunks 2; complete" in texts and "which one?" in texts, texts
            late = message("complete", task_id=task.id)
            await raises(-32004, collect(client.send_message(late)))

    async def errors(self):
        async with await self.client() as client:
            for call in (
                client.get_task(TaskQueryParams(id="none")),
                client.cancel_task(TaskIdParams(id="none")),
                collect(client.resubscribe(TaskIdParams(id="none"))),
                collect(client.send_message(message("complete", task_id="none"))),
            ):
                await raises(-32001, call)
            events = await collect(client.send_message(message("fail")))
            task, last = events[-1]
            assert last.status.state == TaskState.failed and last.final, last
            assert last.metadata[RECEIPT]["error"] == "as the message says", last
            await raises(-32002, client.cancel_task(TaskIdParams(id=task.id)))

    async def push(self):
        """A webhook gets the task after each change of its status, with its token."""
        async with Webhook() as webhook, await self.client(streaming=False) as client:
            gate = uuid.uuid4().hex
            config = PushNotificationConfig(url=webhook.url, token="our token", id="first")
            sent = client.send_message(
                message(f"gate {gate}; chunks 3; complete"),
                configuration=MessageSendConfiguration(
                    blocking=False, push_notification_config=config
                ),
            )
            [(task, _)] = await collect(sent)
            named = GetTaskPushNotificationConfigParams(
                id=task.id, push_notification_config_id="first"
            )
            got = await client.get_task_callback(named)
            assert got.push_notification_config == config, got
            second = TaskPushNotificationConfig(
                task_id=task.id,
                push_notification_config=PushNotificationConfig(url=webhook.url, id="second"),
            )
            assert await client.set_task_callback(second) == second
            await self.open_gate(gate)
            states = []
            while states[-1:] != [TaskState.completed]:
                headers, body = await webhook.requests.get()
                if "x-a2a-notification-token" in headers:
                    assert headers["x-a2a-notification-token"] == "our token", headers
                    notified = Task.model_validate_json(body)
                    assert notified.id == task.id, notified
                    states.append(notified.status.state)
            assert numbers(notified.artifacts) == [1, 2, 3], notified

    async def echo(self):
        """The agent of `allstop serve --agent echo`."""
        async with await self.client() as client:
            events = await collect(client.send_message(message("hello")))
            [update] = [e for _, e in events if isinstance(e, TaskArtifactUpdateEvent)]
            assert update.artifact.parts[0].root.text == "hello", update
            assert events[-1][1].final, events[-1]

    async def token(self):
        """The card names the bearer token; the SDK's own interceptor sends it."""
        [right, wrong] = json.loads(sys.stdin.readline())
        card = await A2ACardResolver(self.side, self.url).get_agent_card()
        assert card.supports_authenticated_extended_card, card
        for token, is_right in ((right, True), (wrong, False), (None, False)):
            store = InMemoryContextCredentialStore()
            for scheme in card.security_schemes if token else []:
                await store.set_credentials("session", scheme, token)
            async with await self.client(interceptors=[AuthInterceptor(store)]) as client:
                context = ClientCallContext(state={"sessionId": "session"})
                sent = collect(client.send_message(message("hello"), context=context))
                if is_right:
                    assert (await sent)[-1][1].status.state == TaskState.completed
                    extended = await client.get_card(context=context)
                    assert "principal" in extended.model_dump_json(), extended
                    continue
                try:
                    answer = await sent
                except A2AClientHTTPError as error:
                    assert error.status_code == 401, error
                else:
                    raise AssertionError(answer)

    async def until(self, client, task_id, state):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            task = await client.get_task(TaskQueryParams(id=task_id))
            if task.status.state == state:
                return task
            await asyncio.sleep(0.005)
        raise AssertionError(f"never seen: {task}")


class Webhook:
    """Accepts every request, and queues its headers and body. A scenario reads few of them."""

    async def __aenter__(self):
        self.requests = asyncio.Queue()
        self.server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        port = self.server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/hook"
        return self

    async def __aexit__(self, *_error):
        self.server.close()

    async def answer(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")[1:-2]
        headers = dict(line.split(": ", 1) for line in lines)
        body = await reader.readexactly(int(headers["content-length"]))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()
        await self.requests.put((headers, body))


def message(text, **ids):
    parts = [Part(root=TextPart(text=text))]
    return Message(message_id=uuid.uuid4().hex, role=Role.user, parts=parts, **ids)


def cancel(task_id):
    cause = {RECEIPT: {"cause": {"detail": "lunch", "by": "python"}}}
    return TaskIdParams(id=task_id, metadata=cause)


def numbers(artifacts):
    return [int(part.root.text) for artifact in artifacts or [] for part in artifact.parts]


async def collect(stream):
    return [event async for event in stream]


async def raises(code, call):
    try:
        answer = await call
    except A2AClientJSONRPCError as error:
        assert error.error.code == code, error
        return
    raise AssertionError(f"{answer} instead of {code}")


async def main():
    binding, *names = sys.argv[1:]
    for name, url in (name.split("@") for name in names):
        await asyncio.wait_for(getattr(Scenarios(url, binding), name)(), WAIT_S)
        print(f"passed {name}", flush=True)


asyncio.run(main())
