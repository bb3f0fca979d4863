"""A server on a port, started without the SDK, and what connects to it."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sys

from copilot import CopilotClient, RuntimeConnection
from support import ARGUMENTS, SOON, Watched

TOKEN = "secret"


class Port:
    """The server."""

    def __init__(self, process, number):
        self.process, self.number = process, number

    def client(self):
        """A client that does not own the server."""
        return CopilotClient(connection=RuntimeConnection.for_uri(str(self.number), connection_token=TOKEN))

    @contextlib.asynccontextmanager
    async def connected(self):
        """A session of a client of its own, not open yet."""
        client = self.client()
        await client.start()
        try:
            yield Watched(client)
        finally:
            await client.stop()

    def memory_kb(self, field):
        """A field of the server's memory, such as VmRSS."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(rf"^{field}:\s+(\d+) kB", status.read(), re.MULTILINE)[1])


@contextlib.asynccontextmanager
async def serving(*more_arguments):
    """A server on a free port, which is asked to end by a signal."""
    process = await asyncio.create_subprocess_exec(
        os.environ["COPILOT_CLI_PATH"],
        *ARGUMENTS,
        "--port",
        "0",
        *more_arguments,
        env={**os.environ, "COPILOT_CONNECTION_TOKEN": TOKEN},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), SOON)).decode()
        yield Port(process, int(line.removeprefix("listening on port ")))
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), SOON) == 128 + signal.SIGTERM
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@contextlib.asynccontextmanager
async def other_process(name, **environment):
    """A scenario in a process of its own, which is killed at the end. Yields the process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-B",
        os.path.dirname(os.path.abspath(__file__)),
        *ARGUMENTS,
        "--",
        name,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def deaf_client(port, session):
    """A connection that has resumed a session, and reads nothing from then on."""
    deaf = socket.create_connection(("127.0.0.1", port), timeout=SOON)
    incoming = deaf.makefile("rb")

    def request(number, method, **params):
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
        deaf.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        while True:
            length = int(incoming.readline().split(b":")[1])
            incoming.readline()
            answer = json.loads(incoming.read(length))
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return

    request(1, "connect", token=TOKEN)
    request(2, "session.resume", sessionId=session)
    return deaf
