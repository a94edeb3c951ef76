"""The jars that the lock names."""

import hashlib
import re
from pathlib import Path

import pytest

from imagestrata.devstack import SetupError, jars


def test_the_lock_contains_both_sets_and_no_urls() -> None:
    locked = jars.read_lock()
    assert {jar.group for jar in locked} == {"cassandra", "spark"}
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
        jars.paths("spark")
