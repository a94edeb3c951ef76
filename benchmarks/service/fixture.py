"""The service that is measured, in a separate process, and the data to upload."""

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness.processes import anonymous_mb, watched
from benchmarks.service.figures import Sizes
from imagestrata.devstack.servers.dataset_server import DatasetServer

TAR = "application/x-tar"
_BLOCK = 1 << 24


def memory_of(service: DatasetServer, *, seconds: float = 0.02) -> AbstractContextManager[list[tuple[float, float]]]:
    """Samples the anonymous memory of a service in MB."""
    return watched(partial(anonymous_mb, service.process.pid), seconds=seconds)


class Fixture:
    """A folder with one large file and one tar of many small ones."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.folder, self.sizes = folder, sizes
        self.file, self.tar = folder / "file.bin", folder / "folder.tar"
        rng = np.random.default_rng(0)
        with open(self.file, "wb") as file:
            for start in range(0, sizes.file_bytes, _BLOCK):
                file.write(rng.bytes(min(_BLOCK, sizes.file_bytes - start)))

    @property
    def file_mb(self) -> float:
        """The size of the file in MB."""
        return self.file.stat().st_size / 1e6

    def make_tar(self) -> Path:
        """Write the tar: many distinct files in class folders."""
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
    def service(self) -> Iterator[DatasetServer]:
        """Run a service over a new folder, and remove it at the end."""
        root = self.folder / "root"
        try:
            with DatasetServer(root) as service:
                yield service
        finally:
            shutil.rmtree(root, ignore_errors=True)


def curl(*arguments: str) -> float:
    """Run curl, with the body to the null device; return the seconds. Raises OSError for any status but 200."""
    form = "%{http_code} %{time_total}"
    done = subprocess.run(
        ["curl", "-sS", "-o", os.devnull, "-w", form, *arguments], capture_output=True, text=True, check=False
    )
    status, _, seconds = done.stdout.partition(" ")
    if done.returncode or status != "200":
        raise OSError(f"Wanted 200 of curl {' '.join(arguments)}. Found: {done.stdout} {done.stderr}")
    return float(seconds)


def put(file: Path, url: str, *, kind: str = "application/octet-stream") -> float:
    """Upload a file with curl; return the seconds."""
    return curl("-T", str(file), "-H", f"Content-Type: {kind}", url)
