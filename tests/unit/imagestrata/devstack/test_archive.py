"""The zip that is sent to executors."""

import subprocess
import sys
import zipfile
from pathlib import Path

from formats.origin import VERSION
from imagestrata.devstack import archive


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    for package in archive.PACKAGES:
        (tmp_path / package / "__pycache__").mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("")
        (tmp_path / package / "__pycache__" / "x.pyc").write_text("")
    (tmp_path / "schemas" / "tables.cql").write_text("CREATE TABLE")
    assert archive.write(tmp_path / "build" / "a.zip", tmp_path) == 5
    (tmp_path / "etl" / "__init__.py").touch()
    archive.write(tmp_path / "build" / "b.zip", tmp_path)
    assert (tmp_path / "build/a.zip").read_bytes() == (tmp_path / "build/b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "build" / "a.zip") as written:
        assert "schemas/tables.cql" in written.namelist()


def test_code_in_the_zip_knows_its_version(tmp_path: Path) -> None:
    archive.write(tmp_path / "deps.zip")
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'deps.zip')!r}); from formats import origin; "
    code += "print(origin.__file__, origin.code_version())"
    # -I -S: without the packages and the metadata of this environment.
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [str(tmp_path / "deps.zip" / "formats" / "origin.py"), VERSION]
