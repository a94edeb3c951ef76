"""A Chromium for the tests of web pages: the installed one, or Debian's if this process may install it."""

import os
import shutil
import subprocess

from imagestrata.devstack import SetupError
from imagestrata.devstack.steps import step

NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_S = 900.0
ADVICE = "Install one (apt-get install chromium), or name yours in CHROMIUM."
# Fonts too: without any, no text is drawn.
_INSTALL = ("install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core")


def find() -> str | None:
    """The path of the program: the one that CHROMIUM names, else the first on PATH, else None."""
    return next((path for name in (os.environ.get("CHROMIUM"), *NAMES) if name and (path := shutil.which(name))), None)


def bring() -> str:
    """The path of the program, which is installed if there is none. Raises `SetupError`."""
    if (found := find()) is not None:
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise SetupError(
            f"wanted a Chromium on PATH. Found: none, and this user may not install it with apt-get. {ADVICE}"
        )
    with step("chromium") as current:
        current.progress("downloading")
        _apt("update")
        _apt(*_INSTALL)
        current.detail = "installed with apt-get"
    if (found := find()) is None:
        raise SetupError(f"wanted a Chromium on PATH. Found: none after apt-get. {ADVICE}")
    return found


def _apt(*words: str) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-q", "-o", f"DPkg::Lock::Timeout={TIMEOUT_S:.0f}", *words]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise SetupError(
            f"wanted a Chromium from apt-get {words[0]}. Found: it did not finish in {TIMEOUT_S:.0f} s."
        ) from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no error message").splitlines()[-1]
        raise SetupError(f"wanted a Chromium from apt-get {words[0]}. Found: {said}. {ADVICE}")
