"""A model behind the API of OpenAI, which keeps the requests that it gets."""

import asyncio
import dataclasses
import json


@dataclasses.dataclass
class Reply:
    """Text, and calls of tools with their arguments."""

    text: str
    calls: list = dataclasses.field(default_factory=list)


class ModelServer:
    """Serves on a port of this machine. `replies` are those of the steps of a turn, by the begin of its message."""

    def __init__(self, replies):
        self.replies, self.requests, self.calls = replies, [], 0

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *raised):
        self.server.close()

    def options(self):
        """Options of a session with this model."""
        port = self.server.sockets[0].getsockname()[1]
        provider = {"type": "openai", "base_url": f"http://127.0.0.1:{port}/v1", "api_key": "none"}
        return {"model": "kept", "provider": provider}

    def system_prompt(self):
        """The system message of the last request."""
        return "\n".join(message["content"] for message in self.requests[-1]["messages"] if message["role"] == "system")

    def tools(self):
        """Names of the tools of the last request."""
        return [tool["function"]["name"] for tool in self.requests[-1].get("tools") or []]

    def reply(self, messages):
        last = max(place for place, message in enumerate(messages) if message["role"] == "user")
        step = sum(message["role"] == "assistant" for message in messages[last:])
        prompt = messages[last]["content"]
        # Notes about the stop and the effects of an earlier turn come before the prompt, in the same message.
        prompts = [prompt, *prompt.split("\n\n")[1:]]
        for begin, replies in self.replies.items():
            if any(prompt.startswith(begin) for prompt in prompts):
                return replies[step] if step < len(replies) else None
        return None

    async def serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                [length] = [line.split(":")[1] for line in head.splitlines() if line.startswith("content-length:")]
                request = json.loads(await reader.readexactly(int(length)))
                self.requests.append(request)
                writer.write(self.answer(self.reply(request["messages"])))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def answer(self, reply):
        """The whole answer on the wire; without a reply, an error that is final."""
        if reply is None:
            body = b'{"error": {"message": "no reply is left"}}'
            return b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        calls = []
        for index, (name, arguments) in enumerate(reply.calls):
            self.calls += 1
            function = {"name": name, "arguments": json.dumps(arguments)}
            calls.append({"index": index, "id": f"call_{self.calls}", "type": "function", "function": function})
        delta = {"role": "assistant", "content": reply.text}
        if calls:
            delta["tool_calls"] = calls
        end = "tool_calls" if calls else "stop"
        chunks = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": end}]},
        ]
        about = {"id": "reply", "object": "chat.completion.chunk", "created": 0, "model": "kept"}
        lines = [json.dumps({**about, **chunk}) for chunk in chunks] + ["[DONE]"]
        body = "".join(f"data: {line}\n\n" for line in lines).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
