"""Ctrl-C ends a job with one line, and all of its processes: while Spark starts, and while its tasks run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pictures import texture
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PATIENCE_S = 240.0
IMAGES = 3_000


def processes_of(session: int) -> dict[int, bytes]:
    """The command lines of the processes of a session."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == session and (line := (folder / "cmdline").read_bytes()):
                found[int(folder.name)] = line
        except OSError:  # it has ended
            continue
    return found


@pytest.mark.parametrize(
    ("program", "when", "whole"),
    [
        ("python", "Spark starts", False),
        ("python", "Spark starts", True),
        ("python", "tasks run", True),
        ("spark-submit", "tasks run", True),
    ],
)
def test_ctrl_c_leaves_no_process_and_no_traceback(program: str, when: str, whole: bool, tmp_path: Path) -> None:
    """``whole``: a terminal sends the signal to all processes."""
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "0.png").write_bytes(texture(0))
    for number in range(1, IMAGES):
        (tmp_path / "tree" / "a" / f"{number}.png").hardlink_to(tmp_path / "tree" / "a" / "0.png")
    log = tmp_path / "log"
    with log.open("wb") as output:
        job = subprocess.Popen(
            [BIN / program, ROOT / "jobs" / "shard.py", tmp_path / "tree", "--out", tmp_path / "out",
             "--img-format", "PNG", "--img-size", "512"],
            cwd="/", env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # it may be ignored here
        )  # fmt: skip
    try:
        if when == "Spark starts":
            until(lambda: len(processes_of(job.pid)) > 1, "a second process", seconds=PATIENCE_S)
        else:
            until(lambda: b"write 3,000 images" in log.read_bytes(), "a task", seconds=PATIENCE_S)
        (os.killpg if whole else os.kill)(job.pid, signal.SIGINT)
        assert job.wait(PATIENCE_S) == 130
        until(lambda: not processes_of(job.pid), "their end", seconds=PATIENCE_S)
    finally:
        for pid in processes_of(job.pid):
            os.kill(pid, signal.SIGKILL)
    said = log.read_text()
    assert "Traceback" not in said
    assert "\tat " not in said
    if program == "python":
        assert said.splitlines()[-1] == "interrupted"
    assert not (tmp_path / "out" / "shards.json").exists()
