"""Build the wheel: `make wheel` writes build/dist/imagestrata-VERSION-py3-none-any.whl.

The same files give the same bytes. Build tools are installed from build.lock, with hashes.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from formats.command_line import command
from imagestrata.devstack.environment import Environment


def build(environment: Environment, target: Path) -> Path:
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


@command("error")
def main() -> int:
    """Build the wheel of this checkout and print its path."""
    environment = Environment()
    print(build(environment, environment.root / "build" / "dist"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
