"""Imagestrata as a package.

  python -m imagestrata.devstack.packaging locks            # `make lock`: resolve the dependencies again
  python -m imagestrata.devstack.packaging wheel            # `make wheel`: build/dist/imagestrata-VERSION-...whl
  python -m imagestrata.devstack.packaging archive PATH     # `make deps.zip`: what executors of a cluster import
  python -m imagestrata.devstack.packaging lowest TEST ...  # `make test-lowest`: tests with the lowest dependencies
  python -m imagestrata.devstack.packaging inventory        # `make inventory`: build/inventory, see below

Lock files have exact versions and hashes, no addresses. The wheel and the archive have the same bytes if the files are
the same. The tests run in build/lowest: libraries that pyproject.toml names have their lowest version there, and what
these need in turn has its newest; arguments are passed to pytest in place of the default tests. The inventory is:

  sbom.json       every package with version, license and dependencies (CycloneDX)
  licenses.md     the same packages, as a table of licenses
  audit.json      their known vulnerabilities, as PyPI's advisory service answers

exit codes: 0 done; 1 failed, or a vulnerability is known, or one of the packages was not audited; 2 bad arguments; that
of pytest for lowest
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from formats import origin
from formats.command_line import Parser, command
from formats.durability import whole_file
from imagestrata.devstack import SetupError, java, sparkconf
from imagestrata.devstack.environment import ROOT, VERSION, Environment
from imagestrata.devstack.steps import step

UV = "uv==0.13.8"
SPARK_3 = "pyspark==3.5.9"
# setuptools and wheel build pyspark, which comes as source; hatchling asks for editables when it installs in place.
BUILDERS = ("editables~=0.3", "setuptools", "wheel")
# One lock for all versions of Python, from the lowest on: a package has one version wherever one supports all of them.
LOCK_OPTIONS = (
    *("--universal", "--fork-strategy", "fewest", "--python-version", "3.11", "--generate-hashes"),
    *("--no-annotate", "--no-header", "--no-emit-index-url", "--no-emit-find-links", "--system-certs", "--quiet"),
)
ARCHIVED = ("schemas", "formats", "etl", "jobs")
# cuda130 installs the module that cuda120 installs. notebooks adds what only notebooks import.
EXTRAS = ("spark", "cuda120", "train", "lightning", "metrics", "looks", "lineage", "shards", "service")
OURS = f".[{','.join(EXTRAS)}]"
TESTS = (
    "tests/unit",
    "tests/integration/jobs/test_ingest.py",
    "tests/integration/jobs/test_split.py",
    "tests/integration/jobs/test_shard.py",
    "tests/integration/loader",
    "tests/integration/formats",
    "tests/integration/imagestrata/service",
)


def write_locks(environment: Environment) -> None:
    """Write the lock files. Raises SetupError."""
    project = tomllib.loads((environment.root / "pyproject.toml").read_text(encoding="utf-8"))
    groups = [option for name in ("dev", "java", "go") for option in ("--group", name)]
    inputs: dict[str, tuple[list[str], str | None]] = {
        "requirements.lock": (["pyproject.toml", "--all-extras", *groups], None),
        "imagestrata/devstack/installer.lock": (["-"], UV),
        "imagestrata/devstack/spark3.lock": (["-"], SPARK_3),
        "imagestrata/devstack/build.lock": (["-"], "\n".join((*project["build-system"]["requires"], *BUILDERS))),
    }
    for name, (arguments, text) in inputs.items():
        with step(name):
            environment.run("uv", "pip", "compile", *LOCK_OPTIONS, *arguments, "--output-file", name, input=text)


def build_wheel(environment: Environment, target: Path) -> Path:
    """Build the wheel of a checkout in ``target``, in place of one of the same version, and return its path. Raises
    `SetupError`.
    """
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".new-") as folder:
        options = ("--python", environment.python, "--out-dir", folder, "--no-create-gitignore", "--system-certs")
        held = ("--build-constraints", "imagestrata/devstack/build.lock", "--require-hashes")
        environment.run("uv", "build", "--wheel", "--quiet", *options, *held, environment.root)
        (built,) = Path(folder).glob("*.whl")
        return Path(shutil.move(built, target / built.name))


def write_archive(path: Path, root: Path = ROOT) -> int:
    """Write the packages below ``root`` with their data files to an archive, and return the number of files."""
    files = sorted(
        file
        for package in ARCHIVED
        for file in (root / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".pyc"
    )
    with whole_file(path) as target, zipfile.ZipFile(target, "w") as archive:
        for file in files:
            # A fixed time and mode, so that the bytes depend only on the contents.
            entry = zipfile.ZipInfo(file.relative_to(root).as_posix(), date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes(), compress_type=zipfile.ZIP_DEFLATED)
    return len(files)


def install_lowest(environment: Environment, folder: Path) -> Path:
    """Make an environment with the lowest versions; returns its Python. Raises SetupError."""
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
    environment.run("uv", "pip", "install", *options, "--editable", OURS, "--group", "dev")
    found = java.find(environment.site_packages)
    sparkconf.write(site_packages=site_packages, java_home=found.home, python=python)
    print(f"lowest versions: {' '.join(lines)}", flush=True)
    return python


def write_inventory(environment: Environment, folder: Path) -> None:
    """Write the SBOM and the licenses, and leave the installed packages in `folder`/env. Raises SetupError."""
    python = folder / "env" / "bin" / "python"
    folder.mkdir(parents=True, exist_ok=True)
    environment.run("uv", "venv", "--quiet", "--clear", "--python", environment.python, folder / "env")
    options = ("--python", python, "--system-certs", "--constraints", "requirements.lock")
    environment.run("uv", "pip", "install", *options, OURS)
    sbom = ("environment", "--pyproject", "pyproject.toml", "--mc-type", "library", "--output-reproducible")
    bom = json.loads(environment.run("cyclonedx-py", *sbom, folder / "env"))
    bom["metadata"]["component"]["version"] = origin.VERSION  # not in pyproject.toml, where the tool looks
    (folder / "sbom.json").write_text(json.dumps(bom, indent=2) + "\n", encoding="utf-8")
    table = ("--python", python, "--from", "mixed", "--format", "markdown", "--with-urls")
    environment.run("pip-licenses", *table, "--output-file", folder / "licenses.md")


def audit(environment: Environment, folder: Path) -> list[str]:
    """Return a line for each known vulnerability of the packages in `folder`/env, and keep the answer in audit.json.
    Raises `SetupError` if the service did not answer for all packages.
    """
    packages = Environment(folder=str(folder / "env")).site_packages
    # It exits with 1 for vulnerabilities and for failures alike, and with 0 where it could not ask for any package.
    options = ("--path", packages, "--format", "json", "--progress-spinner", "off")
    answer = environment.run("pip-audit", *options, check=False)
    try:
        found = json.loads(answer)["dependencies"]
    except (ValueError, KeyError) as error:
        raise SetupError(f"wanted an answer from PyPI's advisory service. Found: none ({error}).") from error
    (folder / "audit.json").write_text(answer, encoding="utf-8")
    return judge(found)


def judge(found: list[dict[str, Any]]) -> list[str]:
    """The vulnerabilities in an answer. Raises SetupError unless it covers all packages but ours."""
    ours = {"imagestrata"}
    skipped = [str(one["name"]) for one in found if "skip_reason" in one and one["name"] not in ours]
    if not found:
        raise SetupError("wanted an audit of the installed packages. Found: nothing was audited.")
    if skipped:
        names = ", ".join(skipped[:3]) + (", ..." if len(skipped) > 3 else "")
        raise SetupError(
            f"wanted an audit of {len(found)} packages. Found: PyPI's advisory service does not know {len(skipped)} "
            f"({names}), which are not audited. Do: run this on a machine with access to PyPI itself, not to a mirror."
        )
    return [
        f"{one['name']} {one['version']}: {issue['id']}, fixed in {', '.join(issue['fix_versions']) or 'no version'}"
        for one in found
        for issue in one.get("vulns", [])
    ]


@command("error")
def main(argv: Sequence[str] | None = None) -> int:
    """Run a task; returns its exit code."""
    parser = Parser("python -m imagestrata.devstack.packaging", manual=__doc__)
    tasks = parser.add_subparsers(dest="task", required=True)
    for name in ("locks", "wheel", "inventory"):
        tasks.add_parser(name)
    tasks.add_parser("archive").add_argument("path", type=Path)
    tasks.add_parser("lowest").add_argument("tests", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    environment = Environment()
    build = environment.root / "build"
    match args.task:
        case "locks":
            write_locks(environment)
        case "wheel":
            print(build_wheel(environment, build / "dist"))
        case "archive":
            print(f"{args.path}  {write_archive(args.path)} files")
        case "lowest":
            python = install_lowest(environment, build / "lowest")
            env = os.environ | {"PATH": f"{python.parent}:{os.environ['PATH']}", "VIRTUAL_ENV": str(python.parents[1])}
            pytest = [str(python), "-m", "pytest", "-n", "logical", "--max-worker-restart", "1"]
            return subprocess.run([*pytest, *(args.tests or TESTS)], cwd=environment.root, env=env).returncode
        case "inventory":
            folder = build / "inventory"
            write_inventory(environment, folder)
            print(f"SBOM      {folder / 'sbom.json'}\nlicenses  {folder / 'licenses.md'}", flush=True)
            found = audit(environment, folder)
            print("\n".join(found) or "audit     no known vulnerabilities")
            return 1 if found else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
