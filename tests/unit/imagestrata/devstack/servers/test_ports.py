"""Which process holds a port."""

import os
import socket
import threading

from imagestrata.devstack.servers import ports


def test_a_listening_process_is_found_while_it_opens_and_closes_files() -> None:
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            for descriptor in [os.open(os.devnull, os.O_RDONLY) for _ in range(100)]:
                os.close(descriptor)

    busy = threading.Thread(target=churn)
    busy.start()
    try:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
            assert all(ports.holds(os.getpid(), port, "127.0.0.1") for _ in range(100))
            assert ports.holder(port, "127.0.0.1").endswith(f"(pid {os.getpid()})")
            assert not ports.holds(os.getpid(), port, "127.0.0.2")
    finally:
        done.set()
        busy.join()
