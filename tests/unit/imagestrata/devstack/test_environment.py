"""When the set-up counts as done, and the contents of its locks."""

import json
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest

from imagestrata.devstack import SetupError
from imagestrata.devstack.environment import Environment, Wanted, parse_args

ROOT = Path(__file__).resolve().parents[4]
SITE_PACKAGES = Path(sys.prefix) / "lib" / "python3.11" / "site-packages"


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
    record = {"extras": ["spark"], "groups": ["dev"], "root": str(environment.root)}
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
    other = Environment(tmp_path, folder="build/spark4/.venv", lock="spark4.lock")
    shutil.copy(ROOT / "imagestrata/devstack/spark4.lock", tmp_path / "imagestrata/devstack")
    assert other.site_packages.is_relative_to(tmp_path / "build/spark4/.venv")
    before = other.fingerprint()
    assert before != Environment(tmp_path).fingerprint()
    with (tmp_path / "imagestrata/devstack/spark4.lock").open("a") as lock:
        lock.write("# changed\n")
    assert other.fingerprint() != before


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
        "imagestrata/devstack/spark4.lock",
    ):
        text = (ROOT / name).read_text()
        assert "//" not in text
        for block in re.split(r"\n(?=\S)", text.strip()):
            assert "--hash=sha256:" in block, block


def test_a_tool_that_fails_is_reported_with_its_own_words() -> None:
    environment = Environment()
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
