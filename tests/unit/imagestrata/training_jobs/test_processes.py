"""Processes with a mark in their environment."""

import os
import subprocess
import uuid
from contextlib import suppress
from pathlib import Path

from imagestrata.training_jobs.processes import adopting, kill_marked


def test_marked_processes_end_with_their_children() -> None:
    mark = uuid.uuid4().hex
    with adopting():
        command = ["sh", "-c", "setsid sleep 600 & setsid sleep 600 & echo; wait"]
        env = {**os.environ, "IMAGESTRATA_AGENT": mark}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            kill_marked(mark)
    wanted = f"IMAGESTRATA_AGENT={mark}".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            assert wanted not in Path("/proc", name, "environ").read_bytes()
