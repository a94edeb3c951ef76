"""A training and its workers end quickly and completely: when left early, after an error, and at Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from imagestrata.devstack.servers.cassandra import Cassandra
from tests.support.pictures import picture, write_table
from tests.support.split_folders import image_ids, write_split_folder

COUNT = 43
IDS = image_ids(COUNT, first=5000)
LABELS = [number % 10 for number in range(COUNT)]


@pytest.fixture
def folder(cassandra: Cassandra, keyspace: str, tmp_path: Path) -> Path:
    rows = {one: picture(label) for one, label in zip(IDS, LABELS, strict=True)}
    write_table(f"{keyspace}.data", rows, hosts=cassandra.hosts, port=cassandra.port)
    return write_split_folder(tmp_path / "split", [(IDS, LABELS)], data_table=f"{keyspace}.data")


PASSES = """
import sys
import loader, torch
if __name__ == "__main__":
    folder = loader.open_folder(sys.argv[1])
    dataset = loader.TorchDataset(loader.FolderSource(folder, batch_size=3))
    for epoch, method in enumerate(["spawn", "spawn", "forkserver", "forkserver"]):
        torch.manual_seed(0)
        options = {"batch_size": None, "num_workers": 2, "multiprocessing_context": method}
        batches = list(torch.utils.data.DataLoader(dataset, **options))
        assert {batch.epoch for batch in batches} == {epoch}, (method, epoch)
        assert sorted(one for batch in batches for one in batch.positions) == list(range(len(folder)))
"""


def test_spawned_workers_of_reseeded_passes_take_one_epoch_together(tmp_path: Path) -> None:
    for number in range(10):
        path = tmp_path / "tree" / str(number % 2) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
    (tmp_path / "passes.py").write_text(PASSES)
    command = [sys.executable, tmp_path / "passes.py", tmp_path / "tree"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


SCRIPT = """
import os, signal, sys, time
import loader, torch
from torchdata.stateful_dataloader import StatefulDataLoader
from tests.support.transforms import small
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have had it ignored
    split = loader.open_split(sys.argv[1])
    source = loader.CassandraSource(split, hosts="127.0.0.1", port=int(sys.argv[2]), batch_size=2)
    dataset = loader.TorchDataset(source, transform=small)
    batches = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=sys.argv[4])
    for batch in batches:
        print("first", flush=True)
        if sys.argv[3] == "raise":
            raise ZeroDivisionError("in the loop")
        if sys.argv[3] == "leave":
            break
        time.sleep(60)
"""


@pytest.mark.parametrize(
    ("how", "method", "code", "message"),
    [
        ("leave", "fork", 0, ""),
        ("raise", "spawn", 1, "ZeroDivisionError: in the loop"),
        ("wait", "fork", -signal.SIGINT, "KeyboardInterrupt"),
    ],
)
def test_a_process_and_its_workers_end_quickly(
    folder: Path, cassandra: Cassandra, tmp_path: Path, how: str, method: str, code: int, message: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)]
    process = subprocess.Popen(
        [sys.executable, script, str(folder), str(cassandra.port), how, method],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    if how == "wait":
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, errors = process.communicate(timeout=40)  # what is not ended would run for 60 seconds
    assert process.returncode == code, errors
    assert errors.rstrip().rpartition("\n")[2] == message, errors
    with pytest.raises(ProcessLookupError):  # no worker is left, nor multiprocessing's resource tracker
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.01)
