"""The S3 server's program: versitygw, built once a machine from its own source, shared by all clones.

It lies in `$XDG_CACHE_HOME/imagestrata/versitygw/<version>/`. Modules come the way that your Go is told.
"""

import os
import subprocess
import tempfile
import threading
from pathlib import Path

from imagestrata.devstack import SetupError, golang
from imagestrata.devstack.jars import cache_root
from imagestrata.devstack.steps import Step, locked, step

VERSION = "v1.8.0"
PACKAGE = "github.com/versity/versitygw/cmd/versitygw"
TIMEOUT_S = 1800.0


def program() -> Path:
    """Where the program lies once `build` was here."""
    return cache_root() / "versitygw" / VERSION / "versitygw"


def build() -> Path:
    """The program, built if it is not there: two minutes, once. An interrupted build goes on from where it was.

    Raises SetupError with Go's own word on what went wrong.
    """
    target = program()
    if os.access(target, os.X_OK):
        return target
    with locked(cache_root() / "versitygw.lock", timeout_s=TIMEOUT_S, what="versitygw"):
        if not os.access(target, os.X_OK):
            with step("versitygw") as current:
                _build(target, current)
                current.detail = f"{VERSION} built, once"
    return target


def _build(target: Path, current: Step) -> None:
    go = golang.find_or_bring(current)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Aside: a program that is there is whole. Go itself keeps what it has fetched and compiled.
    with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as staging:
        env = {**os.environ, "GOBIN": staging, "GO111MODULE": "on"}
        env.pop("GOOS", None)
        env.pop("GOARCH", None)
        command = [str(go), "install", "-v", f"{PACKAGE}@{VERSION}"]
        code, said = _run(command, env, current)
        if code != 0:
            raise SetupError(
                f"wanted versitygw {VERSION}, built by {go}. Found: {said}. "
                "Where the Go module proxy cannot be reached, set GOPROXY to yours; then run this again, it goes on."
            )
        (Path(staging) / "versitygw").replace(target)


def _run(command: list[str], env: dict[str, str], current: Step) -> tuple[int, str]:
    """Run Go; what it compiles is the step's progress. Returns its exit code and its last words."""
    said: list[str] = []
    with subprocess.Popen(command, env=env, cwd=tempfile.gettempdir(), stderr=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(TIMEOUT_S, process.kill)
        timer.start()
        try:
            assert process.stderr is not None
            current.progress("fetching modules")
            compiled = 0
            for line in process.stderr:
                said = [*said[-4:], line.strip()]
                if line.startswith("go: downloading"):
                    current.progress("fetching modules")
                else:
                    compiled += 1
                    current.progress(f"{compiled} packages compiled, about two minutes in all")
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    return code, "; ".join(line for line in said[-2:] if line) or "no word of why"
