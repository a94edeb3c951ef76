"""The zip that is sent to executors, and the audit, which counts only if it covers every package."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from formats.origin import VERSION
from imagestrata.devstack import SetupError, packaging

OURS = {"name": "imagestrata", "skip_reason": "not on PyPI"}


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    for package in packaging.ARCHIVED:
        (tmp_path / package / "__pycache__").mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / "__pycache__" / "x.pyc").write_text("")
    (tmp_path / "schemas" / "tables.cql").write_text("CREATE TABLE")
    assert packaging.write_archive(tmp_path / "build" / "a.zip", tmp_path) == 5
    (tmp_path / "etl" / "__init__.py").touch()
    packaging.write_archive(tmp_path / "build" / "b.zip", tmp_path)
    assert (tmp_path / "build/a.zip").read_bytes() == (tmp_path / "build/b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "build" / "a.zip") as written:
        assert "schemas/tables.cql" in written.namelist()


def test_code_in_the_zip_knows_its_version(tmp_path: Path) -> None:
    packaging.write_archive(tmp_path / "deps.zip")
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'deps.zip')!r}); from formats import origin; "
    code += "print(origin.__file__, origin.code_version())"
    # -I -S: without the packages and the metadata of this environment.
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [str(tmp_path / "deps.zip" / "formats" / "origin.py"), VERSION]


def test_each_vulnerability_is_a_line_with_its_fix() -> None:
    issues = [{"id": "CVE-1", "fix_versions": ["2", "3"]}, {"id": "CVE-2", "fix_versions": []}]
    found = [OURS, {"name": "a", "version": "1", "vulns": issues}, {"name": "b", "version": "1", "vulns": []}]
    assert packaging.judge(found) == ["a 1: CVE-1, fixed in 2, 3", "a 1: CVE-2, fixed in no version"]
    assert packaging.judge([{"name": "b", "version": "1", "vulns": []}]) == []


def test_packages_that_were_not_audited_are_a_failure() -> None:
    audited = {"name": "b", "version": "1", "vulns": []}
    with pytest.raises(SetupError, match=r"does not know 1 \(a\)"):
        packaging.judge([audited, {"name": "a", "skip_reason": "not found"}])
    with pytest.raises(SetupError, match="nothing was audited"):
        packaging.judge([])
