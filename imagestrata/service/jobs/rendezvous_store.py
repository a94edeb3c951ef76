"""The store at which the processes of a job meet, until its standard input ends.

It is a process of its own, so that the job outlives any agent; and it ends with who started it, however that ended.
The socket comes from there, too: one that a store opens itself listens to other machines.
"""

import os
import socket
import sys

import torch.distributed as dist


def main(listening: int) -> int:
    """Serve at a socket that listens already, told by its descriptor, until the input ends."""
    port = socket.socket(fileno=os.dup(listening)).getsockname()[1]
    store = dist.TCPStore(  # type: ignore[attr-defined]  # torch does not list it
        "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listening, use_libuv=True
    )
    sys.stdin.buffer.read()
    del store
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
