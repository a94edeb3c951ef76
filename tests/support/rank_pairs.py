"""Two ranks of one torchrun that train case after case, so that torch is imported once."""

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Self

from imagestrata.devstack.servers import ports

RANKS = 2
_POLL_SECONDS = 0.02
_ENVIRONMENT = ("STOP_AT_STEP",)
"""Variables that a case takes from the requesting process."""


class RankPair:
    """A context manager that starts torchrun with the first case, and ends the ranks at its end."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._cases = folder, itertools.count()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._ask(None)
            self._process.wait(timeout=120)

    def train(self, arguments: Sequence[str], folder: Path, *, timeout_s: float = 300) -> tuple[int, str]:
        """Run the training's command line in this folder on both ranks. Returns the larger exit code and the output."""
        if self._process is None:
            self._process = self._start()
        environment = {name: os.environ.get(name, "") for name in _ENVIRONMENT}
        # Each case has a separate rendezvous store, because torchrun's keeps addresses of earlier cases.
        environment |= {"TORCHELASTIC_USE_AGENT_STORE": "False", "MASTER_ADDR": "127.0.0.1"}
        environment["MASTER_PORT"] = str(ports.free(["127.0.0.1"], 1)[0])
        number = self._ask({"arguments": list(arguments), "folder": str(folder), "environment": environment})
        ends = [self._folder / f"{number}.{rank}.code" for rank in range(RANKS)]
        deadline = time.monotonic() + timeout_s
        while not all(end.exists() for end in ends):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._folder / "log").read_text())
            time.sleep(_POLL_SECONDS)
        said = [(self._folder / f"{number}.{rank}.txt").read_text() for rank in range(RANKS)]
        return max(int(end.read_text()) for end in ends), "".join(said)

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={RANKS}"]
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
        with (self._folder / "log").open("wb") as log:
            return subprocess.Popen(
                [*command, __file__, str(self._folder), str(os.getpid())],
                cwd=self._folder,
                env=os.environ | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _ask(self, case: object) -> int:
        number = next(self._cases)
        _publish(self._folder / f"{number}.json", json.dumps(case))
        return number


def serve(folder: Path, asker: int) -> None:
    """One rank: run case after case, until the case is None or the requesting process has ended."""
    from training.train import main

    rank = os.environ["RANK"]
    for number in itertools.count():
        while not (folder / f"{number}.json").exists():
            if not Path(f"/proc/{asker}").exists():
                return
            time.sleep(_POLL_SECONDS)
        case = json.loads((folder / f"{number}.json").read_text())
        if case is None:
            return
        os.environ.update(case["environment"])
        with (
            (folder / f"{number}.{rank}.txt").open("w") as file,
            chdir(case["folder"]),
            redirect_stdout(file),
            redirect_stderr(file),
        ):
            code = main(case["arguments"])
        _publish(folder / f"{number}.{rank}.code", str(code))


def _publish(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}")
    aside.write_text(text)
    aside.replace(path)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
