"""Jars fetched by Ivy."""

import sys
import sysconfig
from pathlib import Path

import pytest

from imagestrata.devstack import SetupError, jars, java, steps

SITE_PACKAGES = Path(sysconfig.get_path("purelib"))


def test_wrong_bytes_are_never_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    right = jars.Jar("spark", "org.reactivestreams", "reactive-streams", "1.0.3", "", "0" * 64)
    monkeypatch.setattr(jars, "read_lock", lambda: [right])
    # The repository is a folder with other bytes under the right name.
    place = tmp_path / "repository/org/reactivestreams/reactive-streams/1.0.3"
    place.mkdir(parents=True)
    (place / right.file_name).write_bytes(b"something else")
    monkeypatch.setenv("IMAGESTRATA_MAVEN_REPOSITORY", (tmp_path / "repository").as_uri() + "/")
    step = steps.Step("jars", sys.stderr)
    with pytest.raises(SetupError, match=r"reactive-streams-1\.0\.3\.jar with sha256 0000.*Found: "):
        jars.fetch(java.find(SITE_PACKAGES).home, jars.ivy_jar(SITE_PACKAGES), step)
    assert not jars.folder().exists()
