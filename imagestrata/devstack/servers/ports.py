"""Listening TCP ports and the processes that use them."""

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

from imagestrata.devstack import PortError

_START_ATTEMPTS = 3


def is_held(port: int, host: str) -> bool:
    """Whether a process listens there."""
    return any(_listens(one, port, host) for one in psutil.net_connections("tcp"))


def holds(pid: int, port: int, host: str) -> bool:
    """Whether the process `pid` listens on `host`:`port`; not if it has ended or belongs to another user."""
    with suppress(psutil.Error):
        return any(_listens(one, port, host) for one in psutil.Process(pid).net_connections("tcp"))
    return False


def holder(port: int, host: str) -> str:
    """The process that listens on `host`:`port`, for messages: its name and pid if this user may see them."""
    for one in psutil.net_connections("tcp"):
        if one.pid is not None and _listens(one, port, host):
            with suppress(psutil.Error):
                return f"{psutil.Process(one.pid).name()} (pid {one.pid})"
    return "a process of another user"


def _listens(one: Any, port: int, host: str) -> bool:
    """Whether a socket listens on `port` of the IPv4 address `host`, or of all addresses."""
    addresses = ("0.0.0.0", "::", host, f"::ffff:{host}")
    return one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.laddr.ip in addresses


def free(hosts: list[str], count: int) -> list[int]:
    """Ports that are free on all `hosts`, as many as `count`. Another process may take one before it is used."""
    ports: list[int] = []
    held: list[socket.socket] = []
    try:
        while len(ports) < count:
            first = socket.socket()
            held.append(first)
            first.bind((hosts[0], 0))
            port = int(first.getsockname()[1])
            try:
                for host in hosts[1:]:
                    other = socket.socket()
                    held.append(other)
                    other.bind((host, port))
            except OSError:
                continue
            ports.append(port)
    finally:
        for one in held:
            one.close()
    return ports


def start(begin: Callable[[], None], *, undo: Callable[[], object], change_ports: Callable[[], None] | None) -> None:
    """Start a server, or undo it. If meanwhile another process has taken a free port, change the ports and start again.
    Ports that the user chose are kept: ``change_ports`` is None, and the `PortError` is raised.
    """
    for attempts_left in reversed(range(_START_ATTEMPTS)):
        try:
            begin()
            return
        except PortError:
            undo()
            if change_ports is None or not attempts_left:
                raise
            change_ports()
        except BaseException:
            undo()
            raise
