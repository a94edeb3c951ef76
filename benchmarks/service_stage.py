"""The service under measurement, a process of its own; and what is sent to it."""

import http.client
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from benchmarks.background import Background
from benchmarks.ingest_watch import anonymous_mb
from benchmarks.results import ROOT
from benchmarks.service_figures import Sizes

TAR = "application/x-tar"
_BLOCK = 1 << 24
_START_SECONDS = 60.0


class Peak(Background):
    """The most anonymous memory of a process while the block runs, in MB, and all that was seen: (second, MB)."""

    def __init__(self, pid: int, *, seconds: float = 0.02) -> None:
        super().__init__()
        self._pid, self._seconds = pid, seconds
        self.seen: list[float] = []

    @property
    def most(self) -> float:
        return max(self.seen, default=0.0)

    def _work(self) -> None:
        while not self._stop.wait(self._seconds):
            self.seen.append(anonymous_mb(self._pid))


class Service:
    """`python -m service` over a folder, on a free port, until the block ends."""

    def __init__(self, root: Path, *options: str) -> None:
        self.root, self._options = root, options

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "service", "--root", str(self.root), "--port", "0", *self._options]
        self._log = open(self.root.parent / f"{self.root.name}.log", "ab")
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=self._log, text=True)
        assert self.process.stdout is not None
        late = threading.Timer(_START_SECONDS, self.process.kill)
        late.start()
        line = self.process.stdout.readline()
        late.cancel()
        if not line.startswith("serving at "):
            raise OSError(f"Wanted a service. Found: it did not start; see {self._log.name}")
        self.url = line.removeprefix("serving at ").strip()
        self.port = int(self.url.rpartition(":")[2])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
        self._log.close()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """A request on a connection of its own: status and body. Raises OSError, http.client.HTTPException."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {key.replace("_", "-"): value for key, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def create(self, name: str) -> None:
        """Make a dataset."""
        status, told = self.ask(
            "POST", "/datasets", json.dumps({"name": name}).encode(), Content_Type="application/json"
        )
        if status != 201:
            raise OSError(f"Wanted a new dataset. Found: {status} {told!r}")


class Stage:
    """A folder with one large file and one tar of many small ones."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.folder, self.sizes = folder, sizes
        self.file, self.tar = folder / "file.bin", folder / "folder.tar"
        rng = np.random.default_rng(0)
        with open(self.file, "wb") as file:
            for start in range(0, sizes.file_bytes, _BLOCK):
                file.write(rng.bytes(min(_BLOCK, sizes.file_bytes - start)))

    def make_tar(self) -> Path:
        """The folder as a tar: so many files in class folders, of bytes that differ."""
        if not self.tar.exists():
            data = np.random.default_rng(1).bytes(_BLOCK)
            with open(self.tar, "wb") as file:
                for number in range(self.sizes.files):
                    member = tarfile.TarInfo(f"train/class-{number % 100:02}/{number:05}.jpg")
                    member.size = self.sizes.of_bytes
                    start = number * 977 % (_BLOCK - member.size)
                    file.write(member.tobuf(tarfile.PAX_FORMAT))
                    file.write(data[start : start + member.size] + bytes(-member.size % tarfile.BLOCKSIZE))
                file.write(bytes(2 * tarfile.BLOCKSIZE))
        return self.tar

    @contextmanager
    def service(self) -> Iterator[Service]:
        """A service over a new folder, which is removed."""
        root = self.folder / "root"
        try:
            with Service(root) as service:
                yield service
        finally:
            shutil.rmtree(root, ignore_errors=True)


def curl(*arguments: str) -> float:
    """Run curl with the null device for the body; the seconds that it took. Raises OSError for any status but 200."""
    form = "%{http_code} %{time_total}"
    done = subprocess.run(
        ["curl", "-sS", "-o", os.devnull, "-w", form, *arguments], capture_output=True, text=True, check=False
    )
    status, _, seconds = done.stdout.partition(" ")
    if done.returncode or status != "200":
        raise OSError(f"Wanted 200 of curl {' '.join(arguments)}. Found: {done.stdout} {done.stderr}")
    return float(seconds)
