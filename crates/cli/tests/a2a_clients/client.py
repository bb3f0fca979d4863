"""Scenarios of the official Python client, unmodified, against servers.

Usage: client.py BINDING SCENARIO@URL... where BINDING is JSONRPC, HTTP+JSON or GRPC.
Prints a line for each scenario that has passed; the first that fails ends the program with an error.
"""

import asyncio
import json
import sys
import time
import uuid

import httpx
from a2a.client import (
    AuthInterceptor,
    ClientConfig,
    InMemoryContextCredentialStore,
    create_client,
)
from a2a.client.client import ClientCallContext
from a2a.helpers import new_text_message
from a2a.types.a2a_pb2 import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils import errors
from google.protobuf.json_format import MessageToDict, Parse, ParseDict
from google.protobuf.struct_pb2 import Value

RECEIPT = "https://allstop.dev/a2a/receipt/v1"
# Far more than an answer takes on a busy machine.
WAIT_S = 20.0


class Scenarios:
    def __init__(self, url, binding, grpc_channel):
        self.url = url
        self.binding = binding
        self.grpc_channel = grpc_channel
        self.side = httpx.AsyncClient(base_url=url)

    async def client(self, **options):
        interceptors = options.pop("interceptors", None)
        config = ClientConfig(
            supported_protocol_bindings=[self.binding],
            grpc_channel_factory=self.grpc_channel,
            **options,
        )
        return await create_client(self.url, config, interceptors=interceptors)

    # Beside the protocol: what the test's own server knows.
    async def is_running(self, task_id):
        return (await self.side.get(f"/test/running/{task_id}")).json()

    async def open_gate(self, name):
        (await self.side.post(f"/test/gates/{name}")).raise_for_status()

    # --- scenarios ---

    async def negotiation(self):
        """The card names version 1.0 for the binding, and its client is the one of 1.0."""
        async with await self.client() as client:
            supported = client._card.supported_interfaces
            versions = [i.protocol_version for i in supported if i.protocol_binding == self.binding]
            assert versions[0] == "1.0", supported
            assert "compat" not in type(client._transport).__module__

    async def send(self):
        async with await self.client(streaming=False) as client:
            [answer] = await collect(client.send_message(request("chunks 3; complete")))
            assert state(answer.task) == "COMPLETED", answer
            assert numbers(answer.task.artifacts) == [1, 2, 3], answer
            got = await client.get_task(GetTaskRequest(id=answer.task.id))
            assert got == answer.task, (got, answer.task)
            short = await client.get_task(GetTaskRequest(id=answer.task.id, history_length=0))
            assert len(got.history) == 1 and not short.history, (got, short)

    async def send_without_waiting(self):
        gate = uuid.uuid4().hex
        async with await self.client(streaming=False, polling=True) as client:
            [answer] = await collect(client.send_message(request(f"gate {gate}; complete")))
            assert state(answer.task) in ("SUBMITTED", "WORKING"), answer
            await self.open_gate(gate)
            await self.until(client, answer.task.id, lambda task: state(task) == "COMPLETED")

    async def parts(self):
        """Content of every kind comes back as it was sent."""
        sent = request("parts; complete")
        add = sent.message.parts.add
        add(raw=bytes(range(256)) * 400, media_type="image/png", filename="ü.png")
        add(url="https://example.com/a?b=c&d=%20", media_type="text/html")
        add(data=ParseDict({"a": [1, 2.5, None, True, "ü\n"], "b": {}}, Value()))
        add(text="é\r\n\u2028\u2029\x85 " * 10_000, metadata={"note": "text"})
        async with await self.client() as client:
            events = await collect(client.send_message(sent))
            [update] = [e.artifact_update for e in events if e.HasField("artifact_update")]
            assert update.artifact.parts == sent.message.parts, update
            got = await client.get_task(GetTaskRequest(id=events[0].task.id))
            assert got.artifacts[0].parts == sent.message.parts, got
            assert got.history[0].parts == sent.message.parts, got

    async def reply(self):
        """An agent may answer with a message, and then there is no task."""
        for streaming in (True, False):
            async with await self.client(streaming=streaming) as client:
                events = await collect(client.send_message(request("reply hello")))
                # A slow machine sends the task first. The reply then ends the task.
                is_late = streaming and len(events) > 1
                reply = events[-1].status_update.status.message if is_late else events[-1].message
                assert reply.parts[0].text == "hello", events
                assert is_late or not reply.task_id, events

    async def stream(self):
        async with await self.client() as client:
            events = await collect(client.send_message(request("chunks 300; complete")))
            kinds = [event.WhichOneof("payload") for event in events]
            assert kinds[0] == "task" and kinds[-1] == "status_update", kinds
            assert state(events[-1].status_update) == "COMPLETED", events[-1]
            assert numbers_of(events) == list(range(1, 301)), numbers_of(events)
            updates = [e.artifact_update for e in events if e.HasField("artifact_update")]
            assert not updates[0].append and all(u.append for u in updates[1:])

    async def cancel(self):
        for last_step in ("gate never", "ignore"):
            async with await self.client() as client:
                events, task_id, ended = [], None, None
                async for event in client.send_message(request(f"chunks 5; {last_step}")):
                    events.append(event)
                    if event.HasField("task"):
                        task_id = event.task.id
                    if numbers_of(events) == [1, 2, 3, 4, 5] and not ended:
                        assert await self.is_running(task_id)
                        ended = await client.cancel_task(cancel_request(task_id))
                        assert not await self.is_running(task_id), "the executor works on"
                assert state(ended) == "CANCELED", ended
                assert state(events[-1].status_update) == "CANCELED", events[-1]
                assert numbers_of(events) == [1, 2, 3, 4, 5], events
                in_task = MessageToDict(ended.metadata)[RECEIPT]
                in_event = MessageToDict(events[-1].status_update.metadata)[RECEIPT]
                assert in_task == in_event, (in_task, in_event)
                assert in_task["receipt"]["schema"] == "allstop.receipt/1", in_task
                assert in_task["receipt"]["quiet"] is True, in_task
                assert in_task["cause"]["detail"] == "lunch", in_task
                # A second cancel joins the first.
                again = await client.cancel_task(CancelTaskRequest(id=task_id))
                assert again == ended, (again, ended)

    async def resubscribe(self):
        """Cut off in mid-stream: the snapshot and the events behind it are the whole history."""
        first, last = uuid.uuid4().hex, uuid.uuid4().hex
        text = f"chunks 5; gate {first}; chunks 300; gate {last}; chunks 5; complete"
        async with await self.client() as client:
            task_id, seen = None, []
            stream = client.send_message(request(text))
            async for event in stream:
                seen.append(event)
                task_id = event.task.id or task_id
                if numbers_of(seen) == [1, 2, 3, 4, 5]:
                    break
            await stream.aclose()
        assert await self.is_running(task_id), "a disconnect stopped the task"
        async with await self.client() as client:
            # The agent writes while the client subscribes.
            await self.open_gate(first)
            seen = []
            async for event in client.subscribe(SubscribeToTaskRequest(id=task_id)):
                seen.append(event)
                if numbers_of(seen)[-1:] == [305]:
                    await self.open_gate(last)
            assert seen[0].HasField("task"), seen[0]
            assert numbers_of(seen) == list(range(1, 311)), numbers_of(seen)
            assert state(seen[-1].status_update) == "COMPLETED", seen[-1]
            await raises(
                errors.UnsupportedOperationError,
                collect(client.subscribe(SubscribeToTaskRequest(id=task_id))),
            )

    async def follow_up(self):
        async with await self.client() as client:
            events = await collect(client.send_message(request("chunks 1; ask which one?")))
            task = events[0].task
            question = events[-1].status_update.status
            assert state(events[-1].status_update) == "INPUT_REQUIRED", events[-1]
            assert question.message.parts[0].text == "which one?", question
            answer = request("chunks 2; complete", task_id=task.id, context_id=task.context_id)
            events = await collect(client.send_message(answer))
            assert state(events[-1].status_update) == "COMPLETED", events[-1]
            got = await client.get_task(GetTaskRequest(id=task.id))
            # A chunk that is not appended begins the artifact anew.
            assert numbers(got.artifacts) == [1, 2], got
            texts = [message.parts[0].text for message in got.history]
            assert "chunks 2; complete" in texts and "which one?" in texts, texts
            late = request("complete", task_id=task.id)
            await raises(errors.UnsupportedOperationError, collect(client.send_message(late)))

    async def list(self):
        context = uuid.uuid4().hex
        async with await self.client(streaming=False) as client:
            ids = []
            for text in ["chunks 1; complete"] * 4 + ["ask what?"]:
                [answer] = await collect(client.send_message(request(text, context_id=context)))
                ids.append(answer.task.id)
            listed, token = [], ""
            while True:
                page = await client.list_tasks(
                    ListTasksRequest(context_id=context, page_size=2, page_token=token)
                )
                assert page.total_size == 5 and page.page_size == 2, page
                assert len(page.tasks) in (1, 2), page
                listed += [task.id for task in page.tasks]
                token = page.next_page_token
                if not token:
                    break
            assert listed == ids[::-1], (listed, ids)
            asked = await client.list_tasks(
                ListTasksRequest(context_id=context, status=TaskState.TASK_STATE_INPUT_REQUIRED)
            )
            assert [task.id for task in asked.tasks] == ids[4:], asked
            for wanted in (True, False):
                page = await client.list_tasks(
                    ListTasksRequest(
                        context_id=context,
                        status=TaskState.TASK_STATE_COMPLETED,
                        include_artifacts=wanted,
                        history_length=1,
                    )
                )
                assert [bool(task.artifacts) for task in page.tasks] == [wanted] * 4, page
                assert [len(task.history) for task in page.tasks] == [1] * 4, page
            later = ListTasksRequest(context_id=context)
            later.status_timestamp_after.FromSeconds(int(time.time()) + 3600)
            assert not (await client.list_tasks(later)).tasks
            await raises(
                errors.InvalidParamsError, client.list_tasks(ListTasksRequest(page_size=1000))
            )

    async def errors(self):
        async with await self.client() as client:
            for call in (
                client.get_task(GetTaskRequest(id="none")),
                client.cancel_task(CancelTaskRequest(id="none")),
                collect(client.subscribe(SubscribeToTaskRequest(id="none"))),
                collect(client.send_message(request("complete", task_id="none"))),
            ):
                await raises(errors.TaskNotFoundError, call)
            events = await collect(client.send_message(request("fail")))
            assert state(events[-1].status_update) == "FAILED", events[-1]
            entry = MessageToDict(events[-1].status_update.metadata)[RECEIPT]
            assert entry["error"] == "as the message says", entry
            ended = CancelTaskRequest(id=events[0].task.id)
            await raises(errors.TaskNotCancelableError, client.cancel_task(ended))

    async def legacy(self):
        """In its mode for version 0.3, the client is served over JSON-RPC, and else learns the reason."""
        async with await self.client() as client:
            card = AgentCard()
            card.CopyFrom(client._card)
        for interface in card.supported_interfaces:
            interface.protocol_version = "0.3"
        for streaming in (True, False):
            config = ClientConfig(
                streaming=streaming,
                supported_protocol_bindings=[self.binding],
                grpc_channel_factory=self.grpc_channel,
            )
            async with await create_client(card, config) as client:
                assert "compat" in type(client._transport).__module__
                sent = collect(client.send_message(request("complete")))
                if self.binding != "JSONRPC":
                    await raises(errors.VersionNotSupportedError, sent)
                    continue
                last = (await sent)[-1]
                ended = last.status_update if streaming else last.task
                assert state(ended) == "COMPLETED", last

    async def push(self):
        """A webhook gets each event once, in order, with its token."""
        async with Webhook() as webhook, await self.client(streaming=False) as client:
            gate = uuid.uuid4().hex
            sent = request(f"gate {gate}; chunks 3; complete")
            sent.configuration.return_immediately = True
            config = sent.configuration.task_push_notification_config
            config.url, config.token, config.id = webhook.url, "our token", "first"
            [answer] = await collect(client.send_message(sent))
            task_id = answer.task.id
            named = GetTaskPushNotificationConfigRequest(task_id=task_id, id="first")
            got = await client.get_task_push_notification_config(named)
            assert (got.url, got.token) == (webhook.url, "our token"), got
            unused = TaskPushNotificationConfig(task_id=task_id, id="second", url=webhook.url)
            await client.create_task_push_notification_config(unused)
            every = ListTaskPushNotificationConfigsRequest(task_id=task_id)
            configs = (await client.list_task_push_notification_configs(every)).configs
            assert {config.id for config in configs} == {"first", "second"}, configs
            await client.delete_task_push_notification_config(
                DeleteTaskPushNotificationConfigRequest(task_id=task_id, id="second")
            )
            configs = (await client.list_task_push_notification_configs(every)).configs
            assert [config.id for config in configs] == ["first"], configs
            await self.open_gate(gate)
            events = []
            while not events or not is_end(events[-1]):
                headers, body = await webhook.requests.get()
                assert headers["x-a2a-notification-token"] == "our token", headers
                events.append(Parse(body, StreamResponse()))
            assert numbers_of(events) == [1, 2, 3], events
            assert state(events[-1].status_update) == "COMPLETED", events

    async def echo(self):
        """The agent of `allstop serve --agent echo`."""
        async with await self.client() as client:
            events = await collect(client.send_message(request("hello")))
            kinds = [event.WhichOneof("payload") for event in events]
            assert kinds == ["task", "status_update", "artifact_update", "status_update"], kinds
            assert events[2].artifact_update.artifact.parts[0].text == "hello", events[2]
            task_id = events[0].task.id
            page = await client.list_tasks(ListTasksRequest(include_artifacts=True))
            assert task_id in [task.id for task in page.tasks], page
        async with await self.client(streaming=False) as client:
            [answer] = await collect(client.send_message(request("hello again")))
            assert answer.task.artifacts[0].parts[0].text == "hello again", answer

    async def token(self):
        """The card says that a bearer token is needed; the SDK's own interceptor sends it."""
        [right, wrong] = json.loads(sys.stdin.readline())
        async with await self.client() as client:
            schemes = list(client._card.security_schemes)
        for token, is_right in ((right, True), (wrong, False), (None, False)):
            store = InMemoryContextCredentialStore()
            for scheme in schemes if token else []:
                await store.set_credentials("session", scheme, token)
            async with await self.client(interceptors=[AuthInterceptor(store)]) as client:
                context = ClientCallContext(state={"sessionId": "session"})
                sent = collect(client.send_message(request("hello"), context=context))
                if is_right:
                    events = await sent
                    assert state(events[-1].status_update) == "COMPLETED", events
                    continue
                listed = client.list_tasks(ListTasksRequest(), context=context)
                for call in (sent, listed):
                    error = await raises(errors.A2AError, call)
                    assert "401" in str(error) or "UNAUTHENTICATED" in str(error), error

    async def until(self, client, task_id, condition):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            task = await client.get_task(GetTaskRequest(id=task_id))
            if condition(task):
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


def is_end(event):
    return event.HasField("status_update") and state(event.status_update) == "COMPLETED"


def request(text, **ids):
    return SendMessageRequest(message=new_text_message(text, role="ROLE_USER", **ids))


def cancel_request(task_id):
    cancel = CancelTaskRequest(id=task_id)
    cancel.metadata.update({RECEIPT: {"cause": {"detail": "lunch", "by": "python"}}})
    return cancel


def state(holder):
    return TaskState.Name(holder.status.state).removeprefix("TASK_STATE_")


def numbers(artifacts):
    return [int(part.text) for artifact in artifacts for part in artifact.parts]


def numbers_of(events):
    """Numbers of the snapshots and of the chunks, as a client adds them up."""
    found = []
    for event in events:
        if event.HasField("task"):
            found += numbers(event.task.artifacts)
        elif event.HasField("artifact_update"):
            found += numbers([event.artifact_update.artifact])
    return found


async def collect(stream):
    return [event async for event in stream]


async def raises(kind, call):
    try:
        answer = await call
    except kind as error:
        return error
    raise AssertionError(f"{answer} instead of {kind.__name__}")


def grpc_channel():
    import grpc.aio

    return grpc.aio.insecure_channel


async def main():
    binding, *names = sys.argv[1:]
    channel = grpc_channel() if binding == "GRPC" else None
    for name, url in (name.split("@") for name in names):
        scenarios = Scenarios(url, binding, channel)
        await asyncio.wait_for(getattr(scenarios, name)(), WAIT_S)
        print(f"passed {name}", flush=True)


asyncio.run(main())
