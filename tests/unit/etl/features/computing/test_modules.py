"""The user's own modules that a module imports: those whose changes change its values."""

import importlib
import sys
import zipfile
from pathlib import Path

import pytest

from etl.features.computing.modules import own_modules

Place = pytest.MonkeyPatch


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path, from which nothing stays imported."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("import own_tones", ["own_tones"]),
        ("import own_tones as t, own_deep.low", ["own_deep", "own_deep.low", "own_low", "own_tones"]),
        ("from own_tones import anything", ["own_tones"]),
        ("from own_deep import low, value", ["own_deep", "own_deep.low", "own_low"]),
        ("from own_deep.low import value", ["own_deep", "own_deep.low", "own_low"]),
        ("from own_deep import *", ["own_deep", "own_deep.high", "own_deep.low", "own_low"]),
        ("def f(image):\n    import own_tones", ["own_tones"]),
        ("import importlib\nimportlib.import_module('own_tones')", ["own_tones"]),
        ("from importlib import import_module as m\n__import__('own_tones')", ["own_tones"]),
        ("import own_one", ["own_one", "own_two"]),  # which import each other
        ("import own_space.inner", ["own_space.inner", "own_tones"]),  # a namespace package
        ("import own_space.deeper.last", ["own_space.deeper.last"]),
        ("import own_main", []),  # itself
        ("try:\n    import own_missing, own_deep.missing\nexcept ImportError: pass", ["own_deep"]),
        ("from ..... import above", []),
        ("import own_broken", ["own_broken"]),
        ("import json, sqlite3, numpy, PIL.Image, pyspark.sql, etl.errors, formats", []),
        ("import sys, _thread, __main__", []),
    ],
)
def test_modules_are_followed_however_they_are_imported(code: Path, text: str, wanted: list[str]) -> None:
    write(code, {
        "own_main.py": text,
        "own_tones.py": "",
        "own_low.py": "import numpy",
        "own_deep/__init__.py": "value = 1",
        "own_deep/low.py": "import own_low\nfrom . import __name__",
        "own_deep/high.py": "from .low import x\nfrom ... import y",
        "own_one.py": "import own_two",
        "own_two.py": "import own_one",
        "own_space/inner.py": "import own_tones",
        "own_space/deeper/last.py": "",
        "own_broken.py": "def (",
    })  # fmt: skip
    importlib.invalidate_caches()
    before = set(sys.modules)
    found = own_modules("own_main")
    assert sorted(found.keys() - {"own_main"}) == wanted
    assert found["own_main"] == text.encode()
    assert not [name for name in set(sys.modules) - before if name.startswith("own_")]  # nothing of it ran


def test_relative_imports_and_packages_belong_to_a_module(code: Path) -> None:
    write(code, {
        "own_pack/__init__.py": "from . import settings",
        "own_pack/settings.py": "",
        "own_pack/inner/__init__.py": "",
        "own_pack/inner/main.py": "from .beside import a\nfrom ..settings import b\nfrom .. import far",
        "own_pack/inner/beside.py": "",
        "own_pack/far.py": "",
        "own_pack/never.py": "",
    })  # fmt: skip
    importlib.invalidate_caches()
    names = ["", ".far", ".inner", ".inner.beside", ".inner.main", ".settings"]
    assert sorted(own_modules("own_pack.inner.main")) == [f"own_pack{name}" for name in names]


def test_modules_in_an_archive_are_own_modules(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(code / "sent.zip", "w") as archive:
        archive.writestr("own_zipped/__init__.py", "")
        archive.writestr("own_zipped/part.py", "from .other import x")
        archive.writestr("own_zipped/other.py", "x = 1")
    monkeypatch.syspath_prepend(code / "sent.zip")
    write(code, {"own_sender.py": "import own_zipped.part"})
    importlib.invalidate_caches()
    found = own_modules("own_sender")
    assert sorted(found) == ["own_sender", "own_zipped", "own_zipped.other", "own_zipped.part"]
    assert found["own_zipped.other"] == b"x = 1"


def test_installed_modules_are_not_own_modules(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(code, {
        "target/own_library.py": "",
        "target/own_library-1.dist-info/METADATA": "Name: own-library\nVersion: 1\n",
        "target/own_library-1.dist-info/RECORD": "own_library.py,,\nown_library-1.dist-info/RECORD,,\n",
        "target/own_copied.py": "import own_library",
        "venv/site-packages/own_installed.py": "",
        "venv/site-packages/own_project/__init__.py": "",
        "venv/site-packages/own_project/main.py": "from own_project import helper\nimport own_installed",
        "venv/site-packages/own_project/helper.py": "",
        "own_user.py": "import own_copied, own_installed, own_project.main",
    })  # fmt: skip
    monkeypatch.syspath_prepend(code / "target")
    monkeypatch.syspath_prepend(code / "venv/site-packages")
    importlib.invalidate_caches()
    assert sorted(own_modules("own_user")) == ["own_copied", "own_user"]
    # Of an installed package with the function, its own modules count.
    assert sorted(own_modules("own_project.main")) == ["own_project", "own_project.helper", "own_project.main"]


def test_compiled_modules_count_as_files(code: Path) -> None:
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    write(code, {f"own_fast{suffix}": "machine code", "own_slow.py": "import own_fast"})
    importlib.invalidate_caches()
    assert own_modules("own_slow")["own_fast"] == b"machine code"
    assert own_modules("own_fast") == own_modules("sys") == own_modules("own_nowhere") == {}
