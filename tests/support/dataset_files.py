"""Folders of files to push and pull, and the commands for it."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from hypothesis import strategies as st

from imagestrata.service.commands import main
from tests.support.dataset_servers import ROOT

MEGA = 1 << 20
SECONDS = 60.0

_SIGNS = st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="/\\") | st.just(" ")
_PART = st.text(_SIGNS, min_size=1, max_size=30).filter(lambda part: part not in (".", ".."))
FILES = st.dictionaries(st.tuples(_PART, _PART), st.binary(max_size=1500) | st.just(b""), min_size=1, max_size=6).map(
    lambda found: {f"{folder}_/{file}": data for (folder, file), data in found.items()}
)
"""Any few files by path, each in a folder."""


def written(root: Path, files: dict[str, bytes]) -> Path:
    """Add these files to a folder."""
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def read(root: Path) -> dict[str, bytes]:
    """The files of a folder by their paths."""
    return {
        path.relative_to(os.path.realpath(root)).as_posix(): path.read_bytes()
        for path in Path(os.path.realpath(root)).rglob("*")
        if path.is_file()
    }


def many(count: int, tag: bytes) -> dict[str, bytes]:
    """Small files in seven folders."""
    return {f"{number % 7}/{number}.jpg": tag + bytes([number % 251]) * (number % 900) for number in range(count)}


def in_thread(call: Callable[[], object]) -> "Future[object]":
    """Call a function in a thread."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return future


def command(*arguments: str, **options: object) -> "subprocess.Popen[str]":
    """Start a command of the service in a separate process."""
    return subprocess.Popen(
        [sys.executable, "-m", "imagestrata", *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,  # type: ignore[call-overload]
    )  # fmt: skip


def ran(*arguments: str) -> tuple[int, str, str]:
    """Run a command of the service: its exit code, its output and its errors."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue(), errors.getvalue()
