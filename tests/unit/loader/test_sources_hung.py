"""A folder that hangs, as one that is mounted from a server may: reads fail in time, and the process ends."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.shard_folders import shards_of
from tests.support.trees import touch

READ = """
import sys, loader
folder, shards = loader.open_folder(sys.argv[1]), loader.shards.open_shards(sys.argv[2])
for kind, of in ((loader.FolderSource, folder), (loader.ShardSource, shards)):
    with kind(of, batch_size=2, rank=0, world_size=1, timeout=1.0) as source:
        try:
            print(len(list(source.epoch(0))))
        except loader.UnreachableError as error:
            print(error)
"""


def test_reads_fail_in_time_and_the_process_ends(tmp_path: Path) -> None:
    shards = shards_of(tmp_path / "shards", [{"png": b"x", "cls": b"0"}] * 4, together=2, label_type="int")
    hung = [
        touch(tmp_path / "tree", "a/1.png", "a/2.png", "a/3.png") / "a/2.png",
        tmp_path / "shards" / shards.contents.shards[1].name,
    ]
    for place in hung:  # to open a pipe that nobody writes to takes for ever
        place.unlink()
        os.mkfifo(place)
    found = subprocess.run(
        [sys.executable, "-c", READ, tmp_path / "tree", tmp_path / "shards"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    lines = found.stdout.splitlines()
    assert (len(lines), found.returncode) == (2, 0), found
    assert lines[0].endswith(f"from the file {hung[0]} within 1 s. Found: no answer")
    assert lines[1] == f"Wanted {tmp_path}/shards within 1 s. Found: no answer"
