"""What runs in the drills, and the judge of each: plain queries and SHA-256, without the code that it judges."""

import hashlib
import json
import sys
import tarfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from uuid import UUID

import pyarrow.parquet as pq

from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from tests.support.drills.world import World


@dataclass(frozen=True)
class Work:
    """Something that a drill disturbs. ``command`` starts it; with ``again``, after it has failed. ``judge`` returns
    what is wrong with its result.
    """

    name: str
    command: Callable[[World, bool], list[str]]  # the name of a job and its options, or a program
    judge: Callable[[World], list[str]]
    is_job: bool = True


def wrong_tables(world: World) -> list[str]:
    """What is wrong with the tables: each image of the source once, with its bytes and its class, and nothing else."""
    wrong = []
    names = [row[0] for row in world.rows(f"SELECT name FROM {world.keyspace}.classes")]
    numbers = {name: number for number, name in enumerate(sorted(map(str, names)))}
    metadata = {
        row[0]: row[1:] for row in world.rows(f"SELECT id, path, label, or_label FROM {world.keyspace}.metadata")
    }
    rows = world.rows(f"SELECT id, data, label FROM {world.keyspace}.data")
    data = {row[0]: row[1:] for row in rows if row[1] is not None}  # a deleted image leaves a row without bytes
    if metadata.keys() != data.keys():
        wrong.append(f"{len(metadata.keys() ^ data.keys())} ids in one table only")
    found = Counter(row[0] for row in metadata.values())
    wrong += [f"{len(world.images.keys() - found.keys())} images lost"] * (not world.images.keys() <= found.keys())
    wrong += [f"{len(found.keys() - world.images.keys())} images too many"] * (not found.keys() <= world.images.keys())
    wrong += [f"{path} {count} times" for path, count in found.items() if count > 1]
    for one in metadata.keys() & data.keys():
        path, label, name = metadata[one]
        digest, number = world.images.get(str(path), ("", -1))
        if hashlib.sha256(data[one][0]).hexdigest() != digest:  # type: ignore[arg-type]
            wrong.append(f"{path} has other bytes")
        if not label == data[one][1] == number == numbers.get(str(name)):
            wrong.append(f"{path} has the label {label}")
    return wrong


def ids_of(world: World) -> dict[UUID, str]:
    """The path of each image by id."""
    return {row[0]: str(row[1]) for row in world.rows(f"SELECT id, path FROM {world.keyspace}.metadata")}  # type: ignore[misc]


def _wrong_split(world: World) -> list[str]:
    folder = world.folder / "split"
    paths, wrong = ids_of(world), []
    found: Counter[UUID] = Counter()
    for index, share in enumerate((0.8, 0.2)):
        table = pq.read_table(folder / f"split={index}")
        ids = [UUID(bytes=one.as_py()) for one in table["id"]]
        found.update(ids)
        counts = Counter(world.images[paths[one]][1] for one in ids if one in paths)
        whole = Counter(number for _, number in world.images.values())
        wrong += [f"class {number} has {counts[number]} images in split {index}" for number, count in whole.items()
                  if abs(counts[number] - share * count) >= 1]  # fmt: skip
        labels = dict(zip(ids, table["label"].to_pylist(), strict=True))
        wrong += [f"{paths[one]} has the label {label}" for one, label in labels.items()
                  if one in paths and label != world.images[paths[one]][1]]  # fmt: skip
    if found != Counter(dict.fromkeys(paths, 1)):
        wrong.append(f"the splits have {sum(found.values())} of {len(paths)} images, {len(found)} different ones")
    return wrong


def _wrong_shards(world: World) -> list[str]:
    storage = Storage("s3://drills/shards", S3Access(world.s3.endpoint, world.s3.access_key, world.s3.secret_key))
    manifest = json.loads(storage.read_text("shards.json"))
    found: Counter[tuple[str, int]] = Counter()
    for shard in manifest["shards"]:
        name = shard["name"] if isinstance(shard, dict) else shard[0]
        with storage.open(name) as stream, tarfile.open(fileobj=BytesIO(stream.read())) as archive:
            files = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
        for name, data in files.items():
            if name.endswith(".png"):
                found[hashlib.sha256(data).hexdigest(), int(files[name.replace(".png", ".cls")])] += 1
    wanted = Counter(world.images.values())
    return [] if found == wanted else [f"shards have {(found & wanted).total()} of {wanted.total()} images"]


def _wrong_features(world: World) -> list[str]:
    rows = world.rows(f"SELECT id, sequence, sharpness FROM {world.keyspace}.metadata_sharpness_v2")
    newest: dict[bytes, tuple[int, float]] = {}
    for one, sequence, value in rows:
        newest[one.bytes] = max(newest.get(one.bytes, (-1, 0.0)), (sequence, value))  # type: ignore[attr-defined,assignment]
    values = {one: value for one, (_, value) in newest.items()}
    world.features = world.features or values
    kept = {one.bytes: world.features.get(one.bytes) for one in ids_of(world)}
    return [] if values == kept else [f"{len(values)} of {len(kept)} values, or others than without a fault"]


def _wrong_deletion(world: World) -> list[str]:
    gone = [path for path in world.images if path.startswith("doe/") and int(path[4:-4]) < 40]
    kept = {path: image for path, image in world.images.items() if path not in gone}
    before, world.images = world.images, kept
    wrong = wrong_tables(world)
    world.images = before
    records = world.rows(f"SELECT id FROM {world.keyspace}.metadata_history")
    wrong += [f"{len(records)} records of {len(gone)} deleted images"] * (len({row[0] for row in records}) < len(gone))
    return wrong


def _epoch(world: World, again: bool) -> list[str]:
    log = world.folder / "epoch.log"
    if not again:
        log.unlink(missing_ok=True)
        log.with_suffix(".state").unlink(missing_ok=True)
    hosts, port = world.place or (",".join(world.server.hosts), world.server.port)
    program = [sys.executable, "-m", "tests.support.drills.epoch"]
    return [*program, str(world.folder / "split"), hosts, str(port), str(log)]


def _wrong_epoch(world: World) -> list[str]:
    ids = {UUID(bytes=one.as_py()) for one in pq.read_table(world.folder / "split" / "split=0")["id"]}
    paths = ids_of(world)
    wanted = Counter((str(one), *world.images[paths[one]]) for one in ids)
    lines = (world.folder / "epoch.log").read_text().splitlines()
    found = Counter((one, digest, int(label)) for one, digest, label in (line.split() for line in lines))
    return [] if found == wanted else [
        f"{(wanted - found).total()} samples lost or wrong, {(found - wanted).total()} too many or wrong"
    ]  # fmt: skip


def _split(world: World, again: bool) -> list[str]:
    return ["split", *world.tables, "-r", "8,2", "--seed", "3", "-o", str(world.folder / "split"), "--overwrite"]


def _ingest(world: World, source: str) -> list[str]:
    world.source = source
    return ["ingest", source, *world.tables, "--dataset", "drills", "--replication", "3"]


def _shard(world: World, again: bool) -> list[str]:
    out = ["--out", "s3://drills/shards", "--maxsize", "1MB"]
    return ["shard", *world.tables, *out, "--resume" if again else "--overwrite"]


def _delete(world: World, again: bool) -> list[str]:
    chosen = ["--ids", str(world.folder / "ids.csv"), "--count", "10"]
    return ["delete", *world.tables, *chosen, "--reason", "a drill"]


def _verify(world: World, again: bool) -> list[str]:
    return ["verify", *world.tables, world.source, "--dataset", "drills"]


INGEST = Work("ingest", lambda world, again: _ingest(world, str(world.tree)), wrong_tables)
FROM_S3 = Work("ingest from S3", lambda world, again: _ingest(world, "s3://drills/tree"), wrong_tables)
SPLIT = Work("split", _split, _wrong_split)
SHARD = Work("shard to S3", _shard, _wrong_shards)
FEATURIZE = Work(
    "featurize", lambda world, again: ["featurize", *world.tables, "--features", "sharpness"], _wrong_features
)
DELETE = Work("delete", _delete, _wrong_deletion)
VERIFY = Work("verify", _verify, wrong_tables)
REPAIR = Work("verify --repair", lambda world, again: [*_verify(world, again), "--repair"], wrong_tables)
EPOCH = Work("epoch", _epoch, _wrong_epoch, is_job=False)


def fresh(world: World) -> None:
    """Let an ingest begin anew, in another keyspace: a node that was down may take a keyspace that was dropped and
    created again for the old one.
    """
    world.number += 1
    world.features.clear()


def has_split(world: World) -> bool:
    """Whether the split is one of the newest ingest."""
    manifest = world.folder / "split" / "_manifest.json"
    return manifest.is_file() and json.loads(manifest.read_text())["data_table"] == f"{world.keyspace}.data"


def choose_images(world: World) -> None:
    """Write the ids of the ten images that a deletion takes."""
    chosen = [str(one) for one, path in ids_of(world).items() if path.startswith("doe/") and int(path[4:-4]) < 40]
    Path(world.folder, "ids.csv").write_text("\n".join(["id", *chosen]) + "\n", encoding="ascii")
