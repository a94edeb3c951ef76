"""The program of the S3 server: versitygw, built from source once per machine and shared by all checkouts.

It is in `$XDG_CACHE_HOME/imagestrata/versitygw/<version>/`. Go downloads modules as it is configured.
"""

import os
import tempfile
from pathlib import Path

from formats.user_cache import our_cache
from imagestrata.devstack import SetupError, golang
from imagestrata.devstack.steps import Step, locked, run_shown, step

VERSION = "v1.8.0"
PACKAGE = "github.com/versity/versitygw/cmd/versitygw"
TIMEOUT_S = 1800.0


def program() -> Path:
    """The path of the program after `build`."""
    return our_cache("versitygw", VERSION, "versitygw")


def build() -> Path:
    """The path of the program, which is built if it does not exist. Raises `SetupError` with the error of Go."""
    target = program()
    if os.access(target, os.X_OK):
        return target
    with locked(our_cache("versitygw.lock"), timeout_s=TIMEOUT_S, what="versitygw"):
        if not os.access(target, os.X_OK):
            with step("versitygw") as current:
                _build(target, current)
                current.detail = f"{VERSION} built"
    return target


def _build(target: Path, current: Step) -> None:
    go = golang.find_or_bring(current)
    target.parent.mkdir(parents=True, exist_ok=True)
    # In another folder first, so that the program appears whole. Go caches what it downloads and compiles.
    with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as staging:
        env = {**os.environ, "GOBIN": staging, "GO111MODULE": "on"}
        env.pop("GOOS", None)
        env.pop("GOARCH", None)
        compiled = 0

        def shown(line: str) -> str:
            nonlocal compiled
            if not line or line.startswith("go: downloading"):
                return "downloading modules"
            compiled += 1
            return f"{compiled} packages compiled; about two minutes in total"

        command = [str(go), "install", "-v", f"{PACKAGE}@{VERSION}"]
        code, said = run_shown(command, current, shown, timeout_s=TIMEOUT_S, cwd=staging, env=env)
        if code != 0:
            last = "; ".join(line.strip() for line in said[-2:]) or "no error message"
            raise SetupError(
                f"wanted versitygw {VERSION}, built by {go}. Found: {last}. "
                "If the Go module proxy cannot be reached, set GOPROXY to yours. Then run this again; it continues."
            )
        (Path(staging) / "versitygw").replace(target)
