"""Run the app with uvicorn, in one process."""

import ctypes
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from formats import logs
from imagestrata.service.server.connections import Limits, limits_of, raise_limit, within

_GRACE_SECONDS = 10
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # of malloc.h
_BACKLOG = 64  # accepted at a time, before one can be refused


def run(app: FastAPI, *, host: str, port: int, proxies: Sequence[str] = (), tell: Callable[[str], None]) -> int:
    """Serve an app until SIGTERM or Ctrl-C, and return the exit code. Active requests then have ten seconds to finish.
    ``port`` 0 picks a free one; X-Forwarded-For of ``proxies`` is trusted; ``tell`` gets the address when the server
    listens. Raises OSError if the address is not available, and SystemExit, with code 0, if the server was stopped.
    """
    _give_memory_back()
    # uvicorn raises the signal again when it has stopped; then the exit code is 0.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
    listening = socket.create_server((host, port), family=family, backlog=_BACKLOG, reuse_port=False)
    shown = f"[{host}]" if ":" in host else host
    tell(f"serving at http://{shown}:{listening.getsockname()[1]}")
    config = config_of(app, limits_of(raise_limit(), proxies))
    with logs.on_stderr("imagestrata serve", level=logging.INFO, text="%(asctime)s %(message)s"):
        uvicorn.Server(config).run(sockets=[listening])
    return 0


def config_of(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    """Configure uvicorn with these limits."""
    return uvicorn.Config(
        app,
        http=within(limits),
        backlog=_BACKLOG,
        loop="asyncio",
        ws="none",  # with `lifespan` off, the middleware is called for HTTP only
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=bool(limits.proxies),
        forwarded_allow_ips=[*limits.proxies],
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )


def _give_memory_back() -> None:
    """Return free memory to the system. By default glibc keeps up to 32 MB in an arena for each thread."""
    with suppress(AttributeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 4 << 20)
        libc.mallopt(_M_ARENA_MAX, 2)
