"""Which Java is found."""

from pathlib import Path

import pytest

from devstack import JavaError, java


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_java_home_comes_first(tmp_path: Path) -> None:
    mine = fake_java(tmp_path / "mine", "17.0.15")
    fake_java(tmp_path / "jvm" / "a", "17.0.1")
    assert java.find(env={"JAVA_HOME": str(mine)}, folders=[f"{tmp_path}/jvm/*"]) == mine


def test_other_java_versions_are_skipped(tmp_path: Path) -> None:
    other = fake_java(tmp_path / "jvm" / "a-25", "25.0.1")
    fake_java(tmp_path / "jvm" / "b-8", "1.8.0_402")
    right = fake_java(tmp_path / "jvm" / "c", "17.0.9")
    assert java.find(env={"JAVA_HOME": str(other)}, folders=[f"{tmp_path}/jvm/*"]) == right


def test_java_on_path_comes_before_the_wheel(tmp_path: Path) -> None:
    wheel = fake_java(java.wheel_home(tmp_path / "site-packages"), "17.0.9")
    assert java.find(tmp_path / "site-packages", env={}, folders=[]) == wheel
    on_path = fake_java(tmp_path / "jdk", "17.0.2")
    env = {"PATH": str(on_path / "bin")}
    assert java.find(tmp_path / "site-packages", env=env, folders=[]) == on_path


def test_without_a_release_file_java_is_asked_for_its_version(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17")
    (home / "release").unlink()
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"17.0.3\" 2022-04-19' >&2\n")
    assert java.major_version(home) == 17


def test_a_missing_java_is_reported_in_one_line(tmp_path: Path) -> None:
    fake_java(tmp_path / "jvm" / "new", "25")
    with pytest.raises(JavaError, match=r"wanted a Java 17 .* Found: .*new is a 25\. .*JAVA_HOME") as error:
        java.find(tmp_path, env={}, folders=[f"{tmp_path}/jvm/*"])
    assert "\n" not in str(error.value)
    with pytest.raises(JavaError, match="Found: no Java at all"):
        java.find(tmp_path, env={}, folders=[])
