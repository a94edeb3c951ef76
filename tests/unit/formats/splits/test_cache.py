"""The cache of opened splits is built once, checked, and shared by the ranks of a host."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import loader
from formats import StorageError, open_split
from formats.splits import cache as split_cache
from formats.splits.cache import cache_folder, cached_rows
from tests.support.split_folders import image_ids, packed, write_split_folder

IDS, LABELS = image_ids(40), [number % 4 for number in range(40)]
OPEN = "from formats import open_split\nrows = open_split(sys.argv[1]).rows(0, cache=sys.argv[2])\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_split_folder(tmp_path / "split", [(IDS, LABELS)])


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python process that runs this code."""
    command = [sys.executable, "-c", f"import sys\n{code}", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def names(cache: Path) -> list[str]:
    """The files in a cache, without its locks."""
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


def test_a_cache_is_enough_without_the_files(folder: Path, cache: Path) -> None:
    first = open_split(folder).rows(0, cache=cache)
    min((folder / "split=0").iterdir()).unlink()
    assert np.array_equal(open_split(folder).rows(0, cache=cache).ids, first.ids)


def test_a_complete_cache_is_enough_on_a_read_only_disk(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_split(folder)
    opened.rows(0, cache=cache)
    monkeypatch.setattr(split_cache, "FileLock", None)
    assert np.array_equal(opened.rows(0, cache=cache).ids, packed(IDS))


@pytest.mark.parametrize("name", ["ids", "labels"])
@pytest.mark.parametrize("size", [None, 0, 7, 10_000])
def test_a_cache_of_another_size_is_made_again(folder: Path, cache: Path, name: str, size: int | None) -> None:
    opened = open_split(folder)
    opened.rows(0, cache=cache)
    file = cache / opened.part(0).fingerprint / name
    if size is None:
        file.unlink()
    else:
        os.truncate(file, size)
    rows = opened.rows(0, cache=cache)
    assert np.array_equal(rows.ids, packed(IDS))
    assert rows.labels.tolist() == LABELS


def test_a_mapped_cache_stays_readable_when_it_is_rebuilt(folder: Path, cache: Path) -> None:
    opened = open_split(folder)
    before = opened.rows(0, cache=cache)
    (cache / opened.part(0).fingerprint / "labels").unlink()
    opened.rows(0, cache=cache)
    assert np.array_equal(before.ids, packed(IDS))
    assert before.labels.tolist() == LABELS


def test_leftovers_of_a_killed_builder_are_not_trusted_and_are_removed(folder: Path, cache: Path) -> None:
    """Killed before the last step."""
    builder = start(
        "import formats.splits.cache as here, time\n"
        "here.sync_files = lambda paths: (print('built', flush=True), time.sleep(3600))\n" + OPEN,
        folder,
        cache,
    )
    with builder:
        try:
            assert builder.stdout is not None
            assert builder.stdout.readline() == "built\n", builder.communicate()
        finally:
            builder.send_signal(signal.SIGKILL)
    opened = open_split(folder)
    (left,) = names(cache)
    assert left.startswith(f"{opened.part(0).fingerprint}.")
    assert np.array_equal(opened.rows(0, cache=cache).ids, packed(IDS))
    assert names(cache) == [opened.part(0).fingerprint]


def test_concurrent_processes_build_a_cache_once(tmp_path: Path, cache: Path) -> None:
    ids = image_ids(20_000)
    folder = write_split_folder(tmp_path / "split", [(ids, [0] * len(ids))], files=5)
    code = (
        "import hashlib, formats.splits.cache as here\n"
        "build, built = here._build, []\n"
        "here._build = lambda *given: (built.append(1), build(*given))\n"
        f"sys.stdin.readline()\n{OPEN}"
        "print(len(built), hashlib.sha256(rows.ids).hexdigest())\n"
    )
    processes = [start(code, folder, cache) for _ in range(2)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], answers
    assert sorted(out.split()[0] for out, _ in answers) == ["0", "1"]
    assert len({out.split()[1] for out, _ in answers}) == 1
    assert names(cache) == [open_split(folder).part(0).fingerprint]


def test_a_full_disk_is_reported_before_anything_is_mapped(folder: Path, cache: Path) -> None:
    """If the disk is full, writing to a mapped page kills a process without a message. A limit simulates that here."""
    code = (
        "import resource, loader\nresource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
        "try:\n    loader.open_split(sys.argv[1], cache=sys.argv[2])\n"
        "except loader.SplitError as error:\n    print(error)\n"
    )
    out, err = start(code, folder, cache).communicate(timeout=60)
    assert f"Wanted a cache of 0.0 MB for 40 rows in {cache}. Found: " in out, err
    assert "File too large" in out
    assert "Make room, or name another folder: cache=..." in out
    assert names(cache) == []


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nope"])
def test_a_cache_that_cannot_be_written_is_reported_with_advice(folder: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"Wanted a cache of .*Found: .*IMAGESTRATA_CACHE"):
        open_split(folder).rows(0, cache=tmp_path / place)
    with pytest.raises(loader.SplitError, match=r"Wanted a cache of .*Found: .*IMAGESTRATA_CACHE"):
        loader.open_split(folder, cache=tmp_path / place)


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IMAGESTRATA_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("IMAGESTRATA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "imagestrata" / "splits"


def test_without_a_home_the_error_says_where_to_put_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("IMAGESTRATA_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(StorageError, match=r"Found: Could not .*XDG_CACHE_HOME"):
        cache_folder()


def test_opening_and_reading_use_no_private_memory_for_rows(cache: Path) -> None:
    """Sparse files replace the caches. A rank reads ids and labels at random places."""
    code = (
        "import json, numpy as np\n"
        "from formats.splits.cache import cached_rows\n"
        "def own():\n"
        "    with open('/proc/self/status') as file:\n"
        "        return next(int(line.split()[1]) for line in file if line.startswith('RssAnon'))\n"
        "for rows in map(int, sys.argv[2:]):\n"
        "    places = np.random.default_rng(0).integers(0, rows, 5_000)\n"
        "    before = own()\n"
        "    opened = cached_rows(sys.argv[1], fingerprint=str(rows), rows=rows, fill=None)\n"
        "    for some in places.reshape(-1, 250):\n"
        "        opened.ids[some], opened.labels[some]\n"
        "    print(json.dumps([before, own()]))\n"
    )
    many = (1_000_000, 100_000_000)
    for rows in many:
        (cache / str(rows)).mkdir(parents=True)
        for name, width in (("ids", 16), ("labels", 4)):
            (cache / str(rows) / name).touch()
            os.truncate(cache / str(rows) / name, width * rows)
    out, err = start(code, cache, *many).communicate(timeout=60)
    found = [json.loads(line) for line in out.splitlines()]
    assert len(found) == 2, err
    assert all(after - before < 4_000 for before, after in found)  # KB


def test_an_empty_split_has_a_cache(cache: Path) -> None:
    filled = []
    for _ in range(2):
        rows = cached_rows(cache, fingerprint="f", rows=0, fill=lambda ids, labels: filled.append(1))
        assert (rows.ids.shape, rows.labels.shape) == ((0, 16), (0,))
    assert filled == [1]
