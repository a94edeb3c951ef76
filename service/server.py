"""The server that runs the app: uvicorn, one process, until it is told to end."""

import logging
import socket
import sys
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

_GRACE_SECONDS = 10
_BACKLOG = 256


def run(app: FastAPI, *, host: str, port: int, tell: Callable[[str], None]) -> int:
    """Serve an app until SIGTERM or Ctrl-C; then requests under way have ten seconds. Raises OSError.

    ``tell`` gets the line that says where, once it listens there.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    listening = socket.create_server((host, port), family=_family(host), backlog=_BACKLOG, reuse_port=False)
    shown = f"[{host}]" if ":" in host else host
    tell(f"serving at http://{shown}:{listening.getsockname()[1]}")
    config = uvicorn.Config(
        app,
        http="httptools",
        loop="asyncio",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    uvicorn.Server(config).run(sockets=[listening])
    return 0


def _family(host: str) -> socket.AddressFamily:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
