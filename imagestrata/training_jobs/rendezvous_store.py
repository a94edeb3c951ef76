"""The rendezvous store of a job, which runs until its standard input is closed.

It has its own process, so that a job survives the loss of any agent. It ends with the process that started it. The
socket is passed in, because a store that opens one itself listens on all addresses.
"""

import os
import socket
import sys

import torch.distributed as dist

from formats.command_line import command


@command("rendezvous store")
def main(listening: int) -> int:
    """Serve on a listening socket, given by its descriptor, until the input is closed."""
    port = socket.socket(fileno=os.dup(listening)).getsockname()[1]
    store = dist.TCPStore(  # type: ignore[attr-defined]  # missing in the types of torch
        "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listening, use_libuv=True
    )
    sys.stdin.buffer.read()
    del store
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
