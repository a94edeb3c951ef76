"""Processes that are recorded in a pid file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from imagestrata.devstack.servers import ports, processes
from tests.support.waiting import until

LINGERING = """
import ctypes, socket, threading, time
held = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: (print(held.getsockname()[1], flush=True), time.sleep(60))).start()
ctypes.CDLL(None).syscall(60, 0)  # the first thread alone exits
"""


def test_a_pid_file_never_names_an_unrelated_process(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    # The pid was reused by another process: same number, another start time.
    pid_file.write_text(f"{os.getpid()} 1\n")
    assert processes.recall(pid_file) is None
    assert processes.end(pid_file, timeout_s=1) is False
    pid_file.write_text("nonsense")
    assert processes.recall(pid_file) is None
    child = subprocess.Popen(["sleep", "60"])
    processes.remember(child.pid, pid_file)
    assert processes.recall(pid_file) == child.pid
    assert processes.end(pid_file, timeout_s=10) is True
    assert processes.start_time(child.pid) is None
    child.wait()


def test_a_process_counts_as_running_until_its_ports_are_released(tmp_path: Path) -> None:
    """The threads of a killed process end one after another. A restart must not find the port in use."""
    child = subprocess.Popen([sys.executable, "-c", LINGERING], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        processes.remember(child.pid, tmp_path / "pid")
        until(lambda: Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        assert ports.is_held(port, "127.0.0.1")
        assert processes.recall(tmp_path / "pid") == child.pid
        assert processes.end(tmp_path / "pid", timeout_s=10, by=signal.SIGKILL) is True
        assert not ports.is_held(port, "127.0.0.1")
    finally:
        child.kill()
        child.communicate()
