"""Run tests with the lowest versions of libraries that pyproject.toml allows: `make test-lowest`.

The environment is build/lowest. Libraries that pyproject.toml names have their lowest version; what these need in turn
has its newest. The unit tests run, and integration tests of the jobs, the loader and the service. Arguments are passed
to pytest in place of the default folders. The exit code is pytest's, or 1 if the environment cannot be made.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from imagestrata.devstack import DevstackError, SetupError, java, sparkconf
from imagestrata.devstack.environment import Environment

# cuda130 installs the module that cuda120 installs. notebooks adds what only notebooks import.
EXTRAS = ("spark", "cuda120", "train", "lightning", "metrics", "looks", "shards", "service")
TOOLS = (
    *("accelerate", "chispa", "hypothesis", "playwright", "psutil", "pytest", "pytest-xdist", "scikit-learn"),
    *("torchdata", "tuspy"),
)
TESTS = (
    "tests/unit",
    "tests/integration/jobs/test_ingest.py",
    "tests/integration/jobs/test_split.py",
    "tests/integration/jobs/test_shard.py",
    "tests/integration/loader",
    "tests/integration/formats",
    "tests/integration/imagestrata/service",
)


def install(environment: Environment, folder: Path) -> Path:
    """Make the environment with the lowest versions; returns its Python. Raises SetupError."""
    uv = str(environment.folder / "bin" / "uv")
    python = folder / "bin" / "python"
    pins = folder.with_suffix(".txt")
    folder.parent.mkdir(parents=True, exist_ok=True)
    extras = [option for name in EXTRAS for option in ("--extra", name)]
    resolve = [uv, "pip", "compile", "pyproject.toml", *extras, "--resolution", "lowest-direct", "--no-header"]
    _run(environment, [*resolve, "--python-version", "3.11", "--annotation-style", "line", "--system-certs"], pins)
    # Only our own ranges: the lines that uv says come from pyproject.toml.
    lines = re.findall(r"^(\S+==\S+)\s+# via .*\(pyproject.toml\)", pins.read_text(encoding="utf-8"), re.MULTILINE)
    pins.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if not python.exists():
        _run(environment, [uv, "venv", "--quiet", "--python", str(environment.python), str(folder)])
    command = [uv, "pip", "install", "--python", str(python), "--system-certs", "--constraints", str(pins)]
    _run(environment, [*command, "--editable", f".[{','.join(EXTRAS)}]", *TOOLS])
    site_packages = folder / "lib" / "python3.11" / "site-packages"
    found = java.find(environment.site_packages)
    sparkconf.write(site_packages=site_packages, java_home=found.home, python=python)
    print(f"lowest versions: {' '.join(lines)}", flush=True)
    return python


def _run(environment: Environment, command: list[str], output: Path | None = None) -> None:
    done = subprocess.run(
        command, cwd=environment.root, env=environment.uv_environment(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SetupError(f"wanted the lowest versions of pyproject.toml. uv says: {done.stderr.strip()}")
    if output:
        output.write_text(done.stdout, encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Make the environment and run the tests in it."""
    environment = Environment()
    try:
        python = install(environment, environment.root / "build" / "lowest")
    except DevstackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    tests = list(sys.argv[1:] if argv is None else argv) or list(TESTS)
    env = os.environ | {"PATH": f"{python.parent}:{os.environ['PATH']}", "VIRTUAL_ENV": str(python.parents[1])}
    command = [str(python), "-m", "pytest", "-n", "logical", "--max-worker-restart", "1", *tests]
    return subprocess.run(command, cwd=environment.root, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
