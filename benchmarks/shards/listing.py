"""How long it takes to list a bucket of a million keys, and how much of that the server needs.

Keys are empty files that are put directly into the folder of the embedded server, the same number in each class folder.
For comparison, plain requests of the client (``list_objects_v2``, page after page) list a part of the same keys. CPU
seconds of the server and of this process are measured separately; on a machine that both share, their sum divided by
the number of cores is a lower bound of the time.
"""

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import loader
from benchmarks.harness.results import Row
from benchmarks.harness.runs import measured
from benchmarks.shards.figures import FIGURES
from benchmarks.shards.fixture import ShardFixture
from imagestrata.devstack.servers.s3 import S3
from loader.s3.client import Client, make_client

BUCKET = "listing"
PREFIX = "train"
CLASSES = 1000


def plant_keys(server: S3, *, keys: int, classes: int) -> None:
    """Create the bucket with empty objects, distributed over class folders."""
    server.make_bucket(BUCKET)
    for label in range(classes):
        folder = server.folder / "buckets" / BUCKET / PREFIX / f"n{label:08}"
        folder.mkdir(parents=True)
        opened = os.open(folder, os.O_RDONLY)
        for number in range(label, keys, classes):
            name = f"{folder.name}_{number:08}.JPEG"
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644, dir_fd=opened))
        os.close(opened)


def list_folder(client: Client, cache: Path) -> int:
    """List it as a training does; return the keys."""
    return len(loader.S3ImageFolder(BUCKET, PREFIX, client=client, cache=cache, refresh=True))


def list_plainly(client: Client, keys: int) -> int:
    """List at least this many keys with the client's own requests, page by page; return the keys."""
    storage = client.storage(BUCKET, PREFIX)
    page: dict[str, str] | None = {}
    found = 0
    while found < keys and page is not None:
        answer = storage.filesystem.call_s3("list_objects_v2", Bucket=BUCKET, Prefix=f"{PREFIX}/", **page)
        found += len(answer["Contents"])
        page = {"ContinuationToken": answer["NextContinuationToken"]} if answer["IsTruncated"] else None
    return found


def timed(work: Callable[[], int]) -> dict[str, float]:
    """The listed keys, the seconds, and the CPU seconds of this process."""
    started, own = time.monotonic(), time.process_time()
    return {"keys": work(), "seconds": time.monotonic() - started, "cpu": time.process_time() - own}


def rows_of_listing(fixture: ShardFixture) -> dict[int, Row]:
    """Create keys on a separate server; list them, and a twentieth of them with plain requests."""
    keys = fixture.sizes.keys
    with tempfile.TemporaryDirectory(prefix="imagestrata-listing-") as folder, S3(Path(folder) / "s3") as server:
        plant_keys(server, keys=keys, classes=min(CLASSES, keys // 20))
        client = make_client(server.endpoint, server.access_key, server.secret_key)
        list_plainly(client, 1000)  # warm-up: imports and the first connection do not count
        _ = loader.S3ImageFolder
        list_ours = partial(timed, lambda: list_folder(client, Path(folder) / "cache"))
        ours, server_cpu, _ = measured(lambda _: list_ours(), port=server.port, servers=[server.pid])
        plain = timed(lambda: list_plainly(client, keys // 20))
    if ours["keys"] != keys:
        raise RuntimeError(f"Wanted {keys:,} keys listed. Found: {ours['keys']:,}")
    note = f"{keys:,} keys, {keys / ours['seconds']:,.0f} keys/s; CPU: server {server_cpu:.1f} s, client "
    note += f"{ours['cpu']:.1f} s; list_objects_v2 page by page {plain['keys'] / plain['seconds']:,.0f} keys/s"
    return {9: FIGURES.value_row(9, ours["seconds"], note=note, runs=1)}
