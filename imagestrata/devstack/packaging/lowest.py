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

from formats.command_line import command
from imagestrata.devstack import java, sparkconf
from imagestrata.devstack.environment import VERSION, Environment

# cuda130 installs the module that cuda120 installs. notebooks adds what only notebooks import.
EXTRAS = ("spark", "cuda120", "train", "lightning", "metrics", "looks", "lineage", "shards", "service")
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
    python = folder / "bin" / "python"
    pins = folder.with_suffix(".txt")
    folder.parent.mkdir(parents=True, exist_ok=True)
    extras = [option for name in EXTRAS for option in ("--extra", name)]
    resolve = ["--resolution", "lowest-direct", "--python-version", VERSION]
    resolve += ["--annotation-style", "line", "--no-header"]
    resolved = environment.run("uv", "pip", "compile", "pyproject.toml", *extras, *resolve, "--system-certs")
    # Only our own ranges: the lines that uv says come from pyproject.toml.
    lines = re.findall(r"^(\S+==\S+)\s+# via .*\(pyproject.toml\)", resolved, re.MULTILINE)
    pins.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    site_packages = Environment(folder=str(folder)).site_packages
    if not site_packages.is_dir():  # or it is of another Python
        environment.run("uv", "venv", "--quiet", "--clear", "--python", environment.python, folder)
    options = ("--python", python, "--system-certs", "--constraints", pins)
    environment.run("uv", "pip", "install", *options, "--editable", f".[{','.join(EXTRAS)}]", "--group", "dev")
    found = java.find(environment.site_packages)
    sparkconf.write(site_packages=site_packages, java_home=found.home, python=python)
    print(f"lowest versions: {' '.join(lines)}", flush=True)
    return python


@command("error")
def main(argv: Sequence[str] | None = None) -> int:
    """Make the environment and run the tests in it."""
    environment = Environment()
    python = install(environment, environment.root / "build" / "lowest")
    tests = list(sys.argv[1:] if argv is None else argv) or list(TESTS)
    env = os.environ | {"PATH": f"{python.parent}:{os.environ['PATH']}", "VIRTUAL_ENV": str(python.parents[1])}
    command = [str(python), "-m", "pytest", "-n", "logical", "--max-worker-restart", "1", *tests]
    return subprocess.run(command, cwd=environment.root, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
