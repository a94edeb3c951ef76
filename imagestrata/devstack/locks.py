"""Lock files of Python packages: exact versions and hashes, no addresses; written by uv, run by hand (`make lock`)."""

import sys
import tomllib
from pathlib import Path

from formats.command_line import command
from imagestrata.devstack.environment import ROOT, Environment
from imagestrata.devstack.steps import step

UV = "uv==0.13.8"
SPARK_3 = "pyspark==3.5.9"
# setuptools and wheel build pyspark, which comes as source; hatchling asks for editables when it installs in place.
BUILDERS = ("editables~=0.3", "setuptools", "wheel")
# One lock for all versions of Python, from the lowest on: a package has one version wherever one supports all of them.
OPTIONS = (
    *("--universal", "--fork-strategy", "fewest", "--python-version", "3.11", "--generate-hashes"),
    *("--no-annotate", "--no-header", "--no-emit-index-url", "--no-emit-find-links", "--system-certs", "--quiet"),
)


def write(environment: Environment) -> None:
    """Write the lock files. Raises SetupError."""
    root = environment.root
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    groups = [option for name in ("dev", "java", "go") for option in ("--group", name)]
    inputs: dict[str, tuple[list[str], str | None]] = {
        "requirements.lock": (["pyproject.toml", "--all-extras", *groups], None),
        "imagestrata/devstack/installer.lock": (["-"], UV),
        "imagestrata/devstack/spark3.lock": (["-"], SPARK_3),
        "imagestrata/devstack/build.lock": (
            ["-"],
            "\n".join((*project["build-system"]["requires"], *BUILDERS)),
        ),
    }
    for name, (arguments, text) in inputs.items():
        with step(name):
            options = (*OPTIONS, *arguments, "--output-file", name)
            environment.run("uv", "pip", "compile", *options, input=text)


@command("error")
def main() -> int:
    """Write the lock files of this checkout."""
    write(Environment(Path(ROOT)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
