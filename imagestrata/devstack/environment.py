"""The set-up: from a bare Python to an environment in which everything here runs.

    python3 -m imagestrata.devstack.environment --extra spark --extra cuda120 --group demo

Steps, one line each: virtual environment (.venv), uv, packages (held to requirements.lock, hashes included), and with
the extra `spark` Java 17, jars, Spark's configuration. What was done is not done again; what was asked for earlier
stays installed; an interrupted run is taken up by the next one. Your pip and uv configuration (index, certificates,
proxies) is respected.

Exit codes: 0 = ready, 1 = failed with one clear line, 2 = bad arguments, 130 = interrupted.
"""

import argparse
import ast
import contextlib
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from formats.command_line import command
from formats.durability import whole_file
from formats.user_cache import our_cache
from imagestrata.devstack import PYTHONS, DevstackError, SetupError, jars, java, sparkconf
from imagestrata.devstack.steps import Step, locked, run_shown, step

ROOT = Path(__file__).resolve().parents[2]
# Gigabytes over a slow line.
TIMEOUT_S = 7200.0
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""The Python that runs the set-up, which is that of the environment."""
# Of each version of Spark one, and one of a set-up that runs at the same time.
_MOST_BUILDS = 3
# pip's settings that uv has under another name.
_UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "no-index": "UV_NO_INDEX",
}


@dataclass(frozen=True)
class Wanted:
    """Extras and dependency groups of pyproject.toml."""

    extras: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def __or__(self, other: "Wanted") -> "Wanted":
        return Wanted(self.extras | other.extras, self.groups | other.groups)

    def __le__(self, other: "Wanted") -> bool:
        return self.extras <= other.extras and self.groups <= other.groups


class Environment:
    """The virtual environment of a checkout. The packages of a ``lock`` below imagestrata/devstack replace those of
    requirements.lock.
    """

    def __init__(self, root: Path = ROOT, *, folder: str = ".venv", lock: str | None = None) -> None:
        self.root = root
        self.folder = root / folder
        self.lock = None if lock is None else f"imagestrata/devstack/{lock}"
        self.python = self.folder / "bin" / "python"
        self._uv = self.folder / "bin" / "uv"
        self.site_packages = self.folder / "lib" / f"python{VERSION}" / "site-packages"
        self.stamp = self.folder / "imagestrata.json"

    def fingerprint(self) -> str:
        """A hash of all that decides what is installed."""
        project = tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))
        parts = [project.get(name) for name in ("build-system", "project", "dependency-groups")]
        digest = hashlib.sha256(json.dumps([*parts, project.get("tool", {}).get("hatch")], sort_keys=True).encode())
        for name in (
            "formats/origin.py",  # has the version
            "requirements.lock",
            "imagestrata/devstack/installer.lock",
            "imagestrata/devstack/build.lock",
            *([self.lock] if self.lock else []),
        ):
            digest.update((self.root / name).read_bytes())
        return digest.hexdigest()

    def installed(self) -> tuple[Wanted, bool]:
        """What the stamp says was installed, and whether that is still what the locks say."""
        try:
            stamp = json.loads(self.stamp.read_text(encoding="utf-8"))
            wanted = Wanted(frozenset(stamp["extras"]), frozenset(stamp["groups"]))
            current = self._here().items() <= stamp.items()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return Wanted(), False
        return wanted, current and os.access(self.python, os.X_OK)

    def _here(self) -> dict[str, str]:
        # A copied or moved checkout brings an environment that points to the old place.
        return {"root": str(self.root), "python": VERSION, "fingerprint": self.fingerprint()}

    def prepare(self, wanted: Wanted) -> None:
        """Do what is missing, step by step; raises DevstackError."""
        with locked(self.root / "build" / "setup.lock", timeout_s=TIMEOUT_S, what="set-up"):
            _check_cache()
            wanted |= self.installed()[0]  # an environment that is made anew gets what the old one had
            with step("virtual environment") as current:
                self._make(current)
            with step("uv") as current:
                self._bring_uv(current)
            with step("packages") as current:
                self._install(wanted, current)
            if "spark" in self.installed()[0].extras:
                with step("Java") as current:
                    found = self._find_java(current)
                with step("jars") as current:
                    jars.fetch(self.site_packages, current)
                with step("Spark configuration") as current:
                    current.ready = not sparkconf.write(
                        site_packages=self.site_packages,
                        java_home=found.home,
                        python=self.python,
                        demo_defaults=self.root / "build" / "demo" / "spark-defaults.conf",
                    )
                    current.detail = _short(sparkconf.conf_folder(self.site_packages), self.root)
                for warning in self._warnings(found):
                    print(f"warning: {warning}", file=sys.stderr, flush=True)

    def _warnings(self, found: java.Java) -> Iterator[str]:
        """What keeps Spark from using this environment as it is."""
        if warning := found.warning(date.today()):
            yield warning
        pyspark = self.site_packages / "pyspark"
        ours = {"SPARK_HOME": pyspark, "SPARK_CONF_DIR": sparkconf.conf_folder(self.site_packages)}
        ours |= {"PYSPARK_PYTHON": self.python, "PYSPARK_DRIVER_PYTHON": self.python}
        for name, path in ours.items():
            own = os.environ.get(name, "")
            if "/" in own and Path(own) != path:  # a name without a folder is found on PATH
                yield f"{name} is set, so spark-submit uses {own}. Unset it to use this environment."
        if " " in str(self.site_packages) and "JAVA_HOME" not in os.environ:
            home = shlex.quote(str(sparkconf.java_for_spark(found.home, site_packages=self.site_packages)))
            yield (
                "Spark's scripts read no settings from a path with a space. Before spark-submit, run "
                f"export JAVA_HOME={home}"
            )

    def bring(self, wanted: Wanted, current: Step) -> None:
        """Install what is needed now and then, into the environment as it is; raises DevstackError."""
        with locked(self.root / "build" / "setup.lock", timeout_s=TIMEOUT_S, what="set-up"):
            self._bring_uv(current)
            self._install(wanted, current)

    def _make(self, current: Step) -> None:
        current.detail = _short(self.folder, self.root)
        if self.installed()[1]:
            current.ready = True
            return
        if self._is_usable():
            return
        try:
            import ensurepip  # noqa: F401
            import venv  # noqa: F401
        except ImportError as error:
            raise SetupError(
                f"wanted Python's modules venv and ensurepip in {sys.executable}. Found: {error}. "
                f"On Debian and Ubuntu they come with the package python{VERSION}-venv."
            ) from None
        if found := _version_of(self.folder):
            current.detail += f"  made anew: it was for Python {found}, this is {VERSION}"
        _run([sys.executable, "-m", "venv", "--clear", str(self.folder)], what="a virtual environment")

    def _is_usable(self) -> bool:
        """Whether a half-made environment can be completed: its Python runs, has pip and believes to be here."""
        code = f"import pip, sys; assert sys.version_info[:2] == {sys.version_info[:2]}; print(sys.prefix)"
        try:
            asked = subprocess.run(
                [str(self.python), "-c", code], capture_output=True, text=True, timeout=60, check=True
            )
            config = (self.folder / "pyvenv.cfg").read_text(encoding="utf-8")
        except (OSError, subprocess.SubprocessError):
            return False
        at_home = "command" not in config or str(self.folder) in config
        return at_home and Path(asked.stdout.strip()).resolve() == self.folder.resolve()

    def _bring_uv(self, current: Step) -> None:
        lock = self.root / "imagestrata" / "devstack" / "installer.lock"
        version = lock.read_text(encoding="utf-8").split("uv==", 1)[1].split()[0]
        current.detail = version
        if (self.site_packages / f"uv-{version}.dist-info" / "RECORD").is_file() and self._uv.is_file():
            current.ready = True
            return
        command = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        _run([*command, "--require-hashes", "--no-deps", "-r", str(lock)], what=f"uv {version} by pip")
        if not self._uv.is_file():
            raise SetupError(
                f"wanted uv in {self.folder}. Found: pip put it elsewhere. Unset PIP_TARGET and PIP_PREFIX."
            )

    def _install(self, wanted: Wanted, current: Step) -> None:
        before, is_current = self.installed()
        everything = before | wanted
        current.detail = " ".join(sorted(everything.extras) + [f"({name})" for name in sorted(everything.groups)])
        if is_current and wanted <= before:
            current.ready = True
            return
        # uv's sync would need a lock for each set of extras, and remove what users have installed besides. Hashes in
        # constraints are verified too, and so are those of the packages that build our own.
        install = [str(self._uv), "pip", "install", "--python", str(self.python), "--system-certs"]
        install += ["--build-constraints", "imagestrata/devstack/build.lock", "--require-build-hashes"]
        install += ["--preview-features", "build-dependency-hashes"]
        extras = f"[{','.join(sorted(everything.extras))}]" if everything.extras else ""
        groups = [option for name in sorted(everything.groups) for option in ("--group", name)]
        commands = [[*install, "--constraints", "requirements.lock", "--editable", f".{extras}", *groups]]
        if self.lock:
            commands.append([*install, "--require-hashes", "--no-deps", "--requirements", self.lock])
        self.stamp.unlink(missing_ok=True)
        env = self.uv_environment()
        for one in commands:
            _run_uv(one, cwd=self.root, env=env, current=current)
        self._prune(env)
        record = {"extras": sorted(everything.extras), "groups": sorted(everything.groups), **self._here()}
        with whole_file(self.stamp) as file:
            file.write(json.dumps(record).encode("utf-8"))

    def _prune(self, env: dict[str, str]) -> None:
        """Remove builds that uv no longer uses from its cache. If the index forbids caching, uv builds pyspark again in
        each set-up, and keeps 2 GB each time.
        """
        builds = list(_uv_cache(env).glob("sdists-*/pypi/pyspark/*/*/"))
        if len(builds) > _MOST_BUILDS:
            with contextlib.suppress(subprocess.TimeoutExpired):  # another uv is running, and a later set-up does it
                subprocess.run([self._uv, "cache", "prune"], env=env, capture_output=True, timeout=60, check=False)

    def run(self, tool: str, *arguments: str | Path, input: str | None = None, check: bool = True) -> str:
        """Run a tool of the environment in the checkout, with the user's package index, and return what it prints. With
        ``check``, raises `SetupError` for an exit code other than 0.
        """
        done = subprocess.run(
            [str(self.folder / "bin" / tool), *map(str, arguments)],
            cwd=self.root,
            env=self.uv_environment(),
            input=input,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if check and done.returncode != 0:
            raise SetupError(f"wanted {tool} to end without an error. Found: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def uv_environment(self) -> dict[str, str]:
        """The user's environment, with pip's settings under uv's names unless uv has settings."""
        env = dict(os.environ)
        listed = subprocess.run(
            [str(self.python), "-m", "pip", "config", "list"], capture_output=True, text=True, timeout=60, check=False
        )
        found: dict[str, tuple[int, str]] = {}
        for line in listed.stdout.splitlines():
            key, _, value = line.partition("=")
            section, _, name = key.rpartition(".")
            rank = {"global": 0, "install": 1, ":env:": 2}.get(section, -1)
            if name in _UV_NAMES and rank >= found.get(name, (-1, ""))[0] and rank >= 0:
                found[name] = (rank, str(ast.literal_eval(value)))
        for name, (_, value) in found.items():
            if not any(
                other in env for other in (_UV_NAMES[name], _UV_NAMES[name].replace("DEFAULT_INDEX", "INDEX_URL"))
            ):
                env[_UV_NAMES[name]] = " ".join(value.split())
        if "extra-index-url" in found:
            # pip looks into all indexes; the hashes make that safe.
            env.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
        env.setdefault("UV_HTTP_TIMEOUT", "120")
        cache = _uv_cache(env)
        while not cache.exists():
            cache = cache.parent
        if cache.stat().st_dev != self.folder.stat().st_dev:
            # Hard links do not reach over file systems; saying so spares uv's warning.
            env.setdefault("UV_LINK_MODE", "copy")
        env.pop("VIRTUAL_ENV", None)
        return env

    def _find_java(self, current: Step) -> java.Java:
        current.ready = True
        java.check_home()
        try:
            found = java.find(self.site_packages)
        except DevstackError:
            current.ready = False
            self._install(Wanted(groups=frozenset({"java"})), current)
            found = java.find(self.site_packages)
        current.detail = found.describe().removeprefix("Java ")
        return found


def _check_cache() -> None:
    """Raise `SetupError` if downloads cannot be stored in the user's cache folder."""
    folder = our_cache()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SetupError(
            f"wanted a folder for downloads that you can write to. Found: {error}. Set XDG_CACHE_HOME to one."
        ) from None


def _uv_cache(env: Mapping[str, str]) -> Path:
    return Path(env.get("UV_CACHE_DIR") or our_cache().parent / "uv")


def _version_of(folder: Path) -> str | None:
    """The version of Python of a virtual environment, if it is not this one."""
    try:
        config = (folder / "pyvenv.cfg").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    found = re.search(r"^version(?:_info)? *= *(\d+\.\d+)", config, re.MULTILINE)
    return found[1] if found and found[1] != VERSION else None


def _short(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _run(command: Sequence[str], *, what: str) -> None:
    # Users set PIP_USER, or `user` in pip.conf, for their own packages; a virtual environment has no such folder.
    env = {**os.environ, "PIP_USER": "0"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise SetupError(f"wanted {what}. Found: {_last_words(done.stdout + done.stderr)}")


def _run_uv(command: Sequence[str], *, cwd: Path, env: dict[str, str], current: Step) -> None:
    """Run uv. Downloads are shown as the step's progress; after a failure, the error has uv's message."""
    under_way: dict[str, str] = {}
    finished = 0

    def shown(line: str) -> str:
        nonlocal finished
        words = line.split()
        if words[:1] == ["Downloading"] and len(words) == 3:
            under_way[words[1]] = words[2].strip("()")
        elif words[:1] == ["Building"] and len(words) > 1:
            under_way[words[1]] = "(building)"
        elif words[:1] in (["Downloaded"], ["Built"]) and len(words) > 1:
            under_way.pop(words[1], None)
            finished += 1
        names = ", ".join(f"{name} {size}" for name, size in list(under_way.items())[:3])
        return f"large files downloaded: {finished}" + (f", now {names}" if names else "")

    code, said = run_shown(command, current, shown, timeout_s=TIMEOUT_S, cwd=cwd, env=env)
    if code != 0:
        sys.stderr.writelines(said[-20:])
        raise SetupError(f"wanted the packages of requirements.lock. Found: {_last_words(''.join(said))}")


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any("No matching distribution" in line for line in lines):  # pip's words, also if no index answers
        return f"{lines[-1].removeprefix('ERROR: ')}. Check pip's index, certificates and proxies: pip config list"
    first = next((n for n, line in enumerate(lines) if line.lower().startswith("error")), None)
    if first is None:
        return (lines or ["no reason given"])[-1]
    # uv lists the causes below its error, from the general to the particular.
    causes = [line for line in lines[first:] if line.lower().startswith(("error", "cause"))]
    return "; ".join(dict.fromkeys((causes[0], causes[-1])))


def parse_args(argv: Sequence[str] | None, known: dict[str, Collection[str]]) -> argparse.Namespace:
    """Extras and groups that pyproject.toml knows."""
    parser = argparse.ArgumentParser(
        prog="python -m imagestrata.devstack.environment", description="Make this checkout's environment ready."
    )
    parser.add_argument(
        "--extra", action="append", default=[], choices=sorted(known["extras"]), help="an extra of pyproject.toml"
    )
    parser.add_argument(
        "--group", action="append", default=[], choices=sorted(known["groups"]), help="a dependency group of it"
    )
    parser.add_argument("--folder", default=".venv", help="the environment's folder in the checkout (default: .venv)")
    parser.add_argument("--lock", help="a lock file below imagestrata/devstack, whose packages replace others")
    return parser.parse_args(argv)


@command("error", interrupted="run it again, and it continues from here")
def main(argv: Sequence[str] | None = None) -> int:
    """Prepare the environment; see the module's text."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    known = {"extras": project["project"]["optional-dependencies"], "groups": project["dependency-groups"]}
    args = parse_args(argv, known)
    if sys.version_info[:2] not in PYTHONS:
        wanted = ", ".join(".".join(map(str, version)) for version in PYTHONS)
        raise SetupError(f"wanted Python {wanted}. Found: {sys.version.split()[0]}. Run 'make PYTHON=/path/to/python'.")
    if not sys.platform.startswith("linux"):
        raise SetupError(f"wanted Linux (NVIDIA DALI and the services run there). Found: {sys.platform}.")
    environment = Environment(folder=args.folder, lock=args.lock)
    environment.prepare(Wanted(frozenset(args.extra), frozenset(args.group)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
