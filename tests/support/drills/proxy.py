"""A TCP proxy on the loopback whose connections are cut, delayed, or left half open."""

import asyncio
import threading
from contextlib import suppress
from typing import Literal, Self

Trouble = Literal["none", "cut", "delay", "half open"]
_DELAY = 0.3  # seconds, each way


class FaultyProxy:
    """Forwards a port. While ``trouble`` is "cut", all connections are reset, new ones too; with "delay", bytes come
    late; with "half open", no byte comes, and connections stay.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self.trouble: Trouble = "none"
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        served = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self.port = int(served.result(10).sockets[0].getsockname()[1])
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._abort)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def begin(self, trouble: Trouble) -> None:
        """Change what happens to connections from now on."""
        self.trouble = trouble
        if trouble == "cut":
            self._loop.call_soon_threadsafe(self._abort)

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.trouble == "cut":
            writer.transport.abort()
            return
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, other_writer}
        await asyncio.gather(self._forward(reader, other_writer), self._forward(other_reader, writer))
        self._writers -= {writer, other_writer}

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                while self.trouble == "half open":
                    await asyncio.sleep(0.05)
                if self.trouble == "delay":
                    await asyncio.sleep(_DELAY)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
