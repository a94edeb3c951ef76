"""The jars in the lock file, and their download."""

import hashlib
import re
import sys
import sysconfig
from pathlib import Path

import pytest

from imagestrata.devstack import SetupError, jars
from imagestrata.devstack.steps import Step

SITE_PACKAGES = Path(sysconfig.get_path("purelib"))


def test_the_lock_contains_all_sets_and_no_urls() -> None:
    locked = jars.read_lock()
    assert {jar.group for jar in locked} == set(jars.ROOTS)
    for group, root in jars.ROOTS.items():
        assert root in {jar.coordinates for jar in locked if jar.group == group}
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in locked)
    assert "//" not in jars.LOCK_FILE.read_text()


def test_the_cache_matches_the_lock() -> None:
    for jar in jars.read_lock():
        data = (jars.folder() / jar.group / jar.file_name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == jar.sha256, jar.coordinates


def test_missing_jars_are_reported_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="make setup"):
        jars.paths("cassandra")


def test_only_right_bytes_are_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("IMAGESTRATA_MAVEN_REPOSITORY", (tmp_path / "repository").as_uri())
    digest = hashlib.sha256(b"right").hexdigest()
    locked = [jars.Jar("spark", "org.one", "one", version, "", digest) for version in ("1", "2")]
    monkeypatch.setattr(jars, "read_lock", lambda: locked)
    monkeypatch.setattr(jars, "TOGETHER", 1)

    def fetch(*contents: bytes) -> Path:
        for jar, content in zip(locked, contents, strict=False):
            place = tmp_path / "repository" / "org/one/one" / jar.version / jar.file_name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        return jars.fetch(SITE_PACKAGES, Step("jars", sys.stderr))

    with pytest.raises(SetupError, match=r"wanted one-2\.jar from file:.*/\. Found: .*one-2\.jar"):
        fetch(b"right")
    with pytest.raises(SetupError, match=rf"wanted one-2\.jar with sha256 {digest}\. Found: [0-9a-f]{{64}}\."):
        fetch(b"another repository", b"something else")  # what arrived before is not downloaded again
    assert not jars.folder().exists()
    published = fetch(b"another repository", b"right")
    assert [(published / "spark" / jar.file_name).read_bytes() for jar in locked] == [b"right", b"right"]


def test_the_default_repository_is_the_one_of_ivy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IMAGESTRATA_MAVEN_REPOSITORY", raising=False)
    assert re.fullmatch(r"https://[a-z0-9.]*maven\.org/[a-z0-9]+/", jars.repository(jars.ivy_jar(SITE_PACKAGES)))


def test_the_connector_is_the_one_for_the_scala_of_the_installed_spark(tmp_path: Path) -> None:
    folder = tmp_path / "pyspark" / "jars"
    folder.mkdir(parents=True)
    with pytest.raises(SetupError, match="Found: Scala none"):
        jars.connector(tmp_path)
    for version, scala in (("2.12.18", "2.12"), ("2.13.18", "2.13")):
        library = folder / f"scala-library-{version}.jar"
        library.touch()
        names = [path.name for path in jars.connector(tmp_path)]
        assert f"spark-cassandra-connector_{scala}-3.5.1.jar" in names
        assert not [name for name in names if {"2.12": "_2.13", "2.13": "_2.12"}[scala] in name]
        library.unlink()
    (folder / "scala-library-3.9.0.jar").touch()
    with pytest.raises(SetupError, match=r"Found: Scala 3\.9\.0"):
        jars.connector(tmp_path)
