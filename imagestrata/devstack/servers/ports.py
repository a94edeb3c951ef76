"""Listening TCP ports and the processes that use them, read from /proc (Linux)."""

import os
import socket
from pathlib import Path


def _listening_inodes(port: int, host: str) -> set[str]:
    """Inodes of sockets that listen on `port` of the IPv4 address `host`, or of all addresses."""
    inodes = set()
    packed = socket.inet_aton(host)[::-1].hex().upper()
    everywhere = {"0" * 8, "0" * 32}
    wanted = everywhere | {packed, "0" * 16 + "FFFF0000" + packed}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, _, number = fields[1].rpartition(":")
            # 0A is LISTEN.
            if fields[3] == "0A" and int(number, 16) == port and address in wanted:
                inodes.add(fields[9])
    return inodes


def sockets(pid: int) -> set[str]:
    """Inodes of the sockets of `pid`; none if it has ended or belongs to another user."""
    inodes = set()
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                try:
                    target = os.readlink(entry.path)
                except OSError:  # closed since the folder was listed
                    continue
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    except OSError:
        pass
    return inodes


def is_held(port: int, host: str) -> bool:
    """Whether a process listens there."""
    return bool(_listening_inodes(port, host))


def holds(pid: int, port: int, host: str) -> bool:
    """Whether the process `pid` listens on `host`:`port`."""
    inodes = _listening_inodes(port, host)
    return bool(inodes) and not inodes.isdisjoint(sockets(pid))


def holder(port: int, host: str) -> str:
    """The process that listens on `host`:`port`, for messages: its name and pid if this user may see them."""
    inodes = _listening_inodes(port, host)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and not inodes.isdisjoint(sockets(int(entry.name))):
            try:
                name = (entry / "comm").read_text(encoding="utf-8", errors="replace").strip()
            except OSError:
                continue
            return f"{name} (pid {entry.name})"
    return "a process of another user"


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
