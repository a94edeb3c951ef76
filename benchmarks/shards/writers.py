"""Writers of a tree of images to one S3 server, each in a separate process and environment.

A request has ``writer``, a name of `WRITERS`, ``tree``, a folder of class folders, ``url``, the endpoint, ``remote``,
an address ``s3://bucket/prefix``, and ``local``, an empty folder; keys are in the environment. All write the same
images in the same random order, each in its package's own format, in one process. The answer: images, seconds without
imports, and CPU seconds.

webdataset's ShardWriter is the baseline of the figure. It does not support S3, so a scheme is registered that keeps a
shard in memory and uploads it with botocore when it is full. Local files that are uploaded afterwards take a fifth
longer; files of s3fs, or a command for each shard, half as long again.
"""

import io
import os
import random
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from benchmarks.shards.readers import Answer, Order, amazon_client, cpu_of_all


def files_of(tree: str) -> list[tuple[str, int]]:
    """The images of a tree, relative to it, with their labels, in a fixed random order."""
    classes = sorted(entry.name for entry in Path(tree).iterdir())
    found = [
        (f"{name}/{file.name}", label)
        for label, name in enumerate(classes)
        for file in sorted(Path(tree, name).iterdir())
    ]
    random.Random(0).shuffle(found)
    return found


def write_webdataset(order: Order, files: list[tuple[str, int]]) -> None:
    """Shards by webdataset's ShardWriter, with the three files per sample that our job writes."""
    webdataset: Any = import_module("webdataset")
    webdataset.gopen_schemes["s3"] = _scheme(order["url"])
    pattern = order["remote"] + "/shard-%06d.tar"
    with webdataset.ShardWriter(pattern, maxsize=order["maxsize"], verbose=0) as writer:
        for number, (path, label) in enumerate(files):
            about = {"path": path, "label": label}
            data = Path(order["tree"], path).read_bytes()
            writer.write({"__key__": f"{number:09}", "jpg": data, "cls": label, "json": about})


class _Whole(io.BytesIO):
    """A shard in memory, which is uploaded when it is closed."""

    def __init__(self, put: Callable[[bytes], Any]) -> None:
        super().__init__()
        self._put = put

    def close(self) -> None:
        """Upload it."""
        if not self.closed:
            self._put(self.getvalue())
        super().close()


def _scheme(url: str) -> Callable[..., IO[bytes]]:
    client = amazon_client(url)

    def open_object(address: str, *rest: Any, **more: Any) -> IO[bytes]:
        bucket, _, key = address.removeprefix("s3://").partition("/")
        return _Whole(lambda data: client.put_object(Bucket=bucket, Key=key, Body=data))

    return open_object


def write_streaming(order: Order, files: list[tuple[str, int]]) -> None:
    """Shards by MosaicML's writer, of its default size, 64 MB."""
    os.environ["S3_ENDPOINT_URL"] = order["url"]
    with import_module("streaming").MDSWriter(out=order["remote"], columns={"jpg": "bytes", "cls": "int"}) as writer:
        for path, label in files:
            writer.write({"jpg": Path(order["tree"], path).read_bytes(), "cls": label})


def write_litdata(order: Order, files: list[tuple[str, int]]) -> None:
    """Chunks of 64 MB by LitData's `optimize` with one worker, as documented; uploaded at the end.

    Its own uploads reject endpoints without TLS.
    """
    import_module("litdata").optimize(
        fn=litdata_sample,
        inputs=[(order["tree"], path, label) for path, label in files],
        output_dir=order["local"],
        chunk_bytes="64MB",
        num_workers=1,
        reorder_files=False,
        verbose=False,
    )
    client = amazon_client(order["url"])
    bucket, _, prefix = order["remote"].removeprefix("s3://").partition("/")
    for path in sorted(Path(order["local"]).iterdir()):
        client.put_object(Bucket=bucket, Key=f"{prefix}/{path.name}", Body=path.read_bytes())


def litdata_sample(source: tuple[str, str, int]) -> dict[str, Any]:
    """A sample as LitData's workers make it."""
    tree, path, label = source
    return {"jpg": Path(tree, path).read_bytes(), "cls": label}


WRITERS: Mapping[str, Callable[[Order, list[tuple[str, int]]], None]] = {
    "webdataset": write_webdataset,
    "streaming": write_streaming,
    "litdata": write_litdata,
}


def write(order: Order) -> Answer:
    """Write, and report the time."""
    files = files_of(order["tree"])
    began = time.monotonic()
    WRITERS[order["writer"]](order, files)
    return {"images": len(files), "seconds": time.monotonic() - began, "cpu": cpu_of_all()}
