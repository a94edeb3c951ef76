"""Build the wheel: `make wheel` writes build/dist/imagestrata-VERSION-py3-none-any.whl.

The same files give the same bytes. Build tools are installed from build.lock, with hashes.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from imagestrata.devstack import DevstackError, SetupError
from imagestrata.devstack.environment import Environment


def build(environment: Environment, target: Path) -> Path:
    """Build the wheel of a checkout.

    Args:
        environment: The checkout's environment, which has uv.
        target: The folder for the wheel. A wheel of the same version there is replaced.

    Returns:
        The path of the wheel.

    Raises:
        SetupError: The build failed.
    """
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".new-") as folder:
        command = [str(environment.folder / "bin" / "uv"), "build", "--wheel", "--quiet", "--system-certs"]
        command += ["--python", str(environment.python), "--out-dir", folder, "--no-create-gitignore"]
        command += ["--build-constraints", "imagestrata/devstack/build.lock", "--require-hashes", str(environment.root)]
        done = subprocess.run(
            command,
            cwd=environment.root,
            env=environment.uv_environment(),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        built = sorted(Path(folder).glob("*.whl"))
        if done.returncode != 0 or len(built) != 1:
            raise SetupError(f"wanted one wheel. Found: {len(built)}. uv says: {done.stderr.strip() or 'nothing'}")
        return Path(shutil.move(built[0], target / built[0].name))


def main() -> int:
    """Build the wheel of this checkout and print its path."""
    environment = Environment()
    try:
        path = build(environment, environment.root / "build" / "dist")
    except (DevstackError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
