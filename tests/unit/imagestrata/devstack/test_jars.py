"""The jars in the lock file."""

import hashlib
import re
from pathlib import Path

import pytest

from imagestrata.devstack import SetupError, jars


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
