"""The round trip to a node, and how many connections it needs."""

import asyncio
import math
import ssl
from collections.abc import Sequence
from contextlib import suppress

# A frame of the native protocol, version 4, that asks what the node supports: it answers without a log-in.
OPTIONS = bytes([4, 0, 0, 0, 5, 0, 0, 0, 0])
_HEADER_BYTES = 9  # of a frame; the last four say how long its body is
_SECONDS = 2.0  # for each host
BYTES_A_SECOND = 500e6  # what one rank may read
_WINDOW = 2e6  # what one connection carries in a round trip at most, with usual buffers
_LEAST, _MOST = 2, 64  # connections


def connections_for(seconds: float | None, /, *, bytes_a_second: float) -> int:
    """The connections to a node for its round trip (None if unknown) and what a client may read in a second."""
    return _MOST // 4 if seconds is None else min(max(_LEAST, math.ceil(bytes_a_second * seconds / _WINDOW)), _MOST)


async def round_trip(hosts: Sequence[str], port: int, tls: ssl.SSLContext | None, /, *, times: int = 1) -> float | None:
    """The round trip to the first node that answers, in seconds, the shortest of so many; None if none does in time. No
    secret is sent.
    """
    for host in hosts:
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_SECONDS):
                reader, writer = await asyncio.open_connection(host, port, ssl=tls)
                try:
                    return min([await _answered(reader, writer) for _ in range(times)])
                finally:
                    writer.close()
    return None


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> float:
    """How long a node takes to answer, in seconds."""
    now = asyncio.get_running_loop().time
    sent = now()
    writer.write(OPTIONS)
    header = await reader.readexactly(_HEADER_BYTES)
    taken = now() - sent
    await reader.readexactly(int.from_bytes(header[-4:], "big"))
    return taken
