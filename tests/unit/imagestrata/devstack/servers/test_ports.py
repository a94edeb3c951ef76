"""Which process holds a port."""

import os
import socket
import threading

from imagestrata.devstack.servers import ports


def test_sockets_of_a_process_are_found_while_it_opens_and_closes_files() -> None:
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            for descriptor in [os.open(os.devnull, os.O_RDONLY) for _ in range(100)]:
                os.close(descriptor)

    busy = threading.Thread(target=churn)
    busy.start()
    try:
        with socket.socket() as one:
            inode = os.readlink(f"/proc/self/fd/{one.fileno()}").removeprefix("socket:[").removesuffix("]")
            assert all(inode in ports.sockets(os.getpid()) for _ in range(100))
    finally:
        done.set()
        busy.join()
