"""When the set-up counts as done, and the contents of its locks."""

import json
import re
import shutil
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from imagestrata.devstack import PYTHONS, SetupError
from imagestrata.devstack.environment import VERSION, Environment, Wanted, parse_args
from imagestrata.devstack.steps import step

ROOT = Path(__file__).resolve().parents[4]
SITE_PACKAGES = Environment().site_packages


def checkout(folder: Path) -> Environment:
    (folder / "imagestrata" / "devstack").mkdir(parents=True)
    (folder / "formats").mkdir()
    for name in (
        "pyproject.toml",
        "formats/origin.py",
        "requirements.lock",
        "imagestrata/devstack/installer.lock",
        "imagestrata/devstack/build.lock",
    ):
        shutil.copy(ROOT / name, folder / name)
    environment = Environment(folder)
    (environment.folder / "bin").mkdir(parents=True)
    environment.python.symlink_to(sys.executable)
    return environment


def stamp(environment: Environment, **changes: object) -> None:
    record = {"extras": ["spark"], "groups": ["dev"], "root": str(environment.root), "python": VERSION}
    record["fingerprint"] = environment.fingerprint()
    environment.stamp.write_text(json.dumps(record | changes))


def test_extras_installed_earlier_are_kept(tmp_path: Path) -> None:
    environment = checkout(tmp_path)
    stamp(environment)
    before, current = environment.installed()
    assert current
    assert Wanted(frozenset({"spark"})) <= before
    assert not Wanted(frozenset({"loader"})) <= before
    assert (before | Wanted(frozenset({"loader"}))).extras == {"spark", "loader"}


def test_a_changed_lock_or_a_moved_checkout_is_not_ready(tmp_path: Path) -> None:
    environment = checkout(tmp_path)
    stamp(environment, root="/elsewhere")
    assert not environment.installed()[1]
    stamp(environment)
    with (tmp_path / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    before, current = environment.installed()
    assert not current
    assert before.extras == {"spark"}


def test_a_second_environment_has_a_folder_and_a_lock_of_its_own(tmp_path: Path) -> None:
    checkout(tmp_path)
    other = Environment(tmp_path, folder="build/spark3/.venv", lock="spark3.lock")
    shutil.copy(ROOT / "imagestrata/devstack/spark3.lock", tmp_path / "imagestrata/devstack")
    assert other.site_packages.is_relative_to(tmp_path / "build/spark3/.venv")
    before = other.fingerprint()
    assert before != Environment(tmp_path).fingerprint()
    with (tmp_path / "imagestrata/devstack/spark3.lock").open("a") as lock:
        lock.write("# changed\n")
    assert other.fingerprint() != before


def test_an_environment_of_another_python_is_made_anew_and_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    environment = checkout(tmp_path)
    stamp(environment, python="3.10")
    environment.python.unlink()
    (environment.folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.10.4\n")
    before, current = environment.installed()
    assert not current
    assert before.extras == {"spark"}  # is installed again
    with step("virtual environment") as shown:
        environment._make(shown)
    assert environment._is_usable()
    assert f"made anew: it was for Python 3.10, this is {VERSION}" in capfd.readouterr().err


def test_all_files_name_the_same_versions_of_python() -> None:
    names = [".".join(map(str, version)) for version in PYTHONS]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [one.rpartition(" ")[2] for one in project["classifiers"] if one.startswith("Programming Language")]
    assert listed == names
    assert project["requires-python"] == f">={names[0]},<3.{PYTHONS[-1][1] + 1}"
    makefile = (ROOT / "Makefile").read_text()
    assert f"WANTED := Python {', '.join(names[:-1])} or {names[-1]}\n" in makefile
    assert f"not {PYTHONS[0]} <= sys.version_info[:2] <= {PYTHONS[-1]})" in makefile


def test_an_interrupted_setup_is_not_ready(tmp_path: Path) -> None:
    environment = checkout(tmp_path)
    assert environment.installed() == (Wanted(), False)
    environment.stamp.write_text('{"extras": ["spa')
    assert environment.installed() == (Wanted(), False)


def test_bad_arguments_are_refused() -> None:
    known = {"extras": {"spark"}, "groups": {"dev"}}
    assert parse_args(["--extra", "spark", "--group", "dev"], known).extra == ["spark"]
    with pytest.raises(SystemExit) as refused:
        parse_args(["--extra", "nonsense"], known)
    assert refused.value.code == 2


def test_every_installed_package_is_in_the_lock() -> None:
    if not Environment().stamp.exists() or Path(sys.prefix) != Environment().folder:
        pytest.skip("this environment was not made by the set-up")
    locked = set(re.findall(r"^([a-z0-9.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    names = {name for name, _ in locked}
    found = {
        (re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(), one.version)
        for one in metadata.distributions(path=[str(SITE_PACKAGES)])
    }
    # Installed by Python's venv and by the set-up itself.
    others = {pair for pair in found if pair[0] not in {"imagestrata", "pip", "setuptools", "uv"}}
    assert {pair for pair in others if pair[0] in names} <= locked
    assert others <= locked


def test_locks_contain_hashes_and_no_urls() -> None:
    for name in (
        "requirements.lock",
        "imagestrata/devstack/installer.lock",
        "imagestrata/devstack/build.lock",
        "imagestrata/devstack/spark3.lock",
    ):
        text = (ROOT / name).read_text()
        assert "//" not in text
        for block in re.split(r"\n(?=\S)", text.strip()):
            assert "--hash=sha256:" in block, block


def test_a_tool_that_fails_is_reported_with_its_own_words() -> None:
    environment = Environment(folder=sys.prefix)  # also that of another Python, in another folder
    assert environment.run("python", "-", input="import os; print(os.getcwd())").strip() == str(environment.root)
    with pytest.raises(SetupError, match=r"^wanted python to end without an error\. Found: no such thing$"):
        environment.run("python", "-c", "import sys; sys.exit('no such thing')")
    assert environment.run("python", "-c", "import sys; print('half'); sys.exit(1)", check=False) == "half\n"


def test_an_environment_that_cannot_be_made_is_reported_with_the_reason(tmp_path: Path) -> None:
    environment = checkout(tmp_path)
    shutil.rmtree(environment.folder)
    environment.folder.symlink_to(environment.folder)  # to itself
    with pytest.raises(SetupError, match=r"^wanted a virtual environment\. Found: Error: .*File exists"):
        environment.prepare(Wanted())


def test_a_cache_folder_that_cannot_be_written_is_named_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = checkout(tmp_path / "checkout")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SetupError, match=r"downloads that you can write to. Found: .*file.* Set XDG_CACHE_HOME"):
        environment.prepare(Wanted())
    assert not (environment.folder / "pyvenv.cfg").exists()
