"""Readers of the same images from one S3 server, each in a separate process and environment.

A request has ``reader``, a name of `READERS`, ``url``, the endpoint, ``images``, their number, and the reader's
arguments; keys are in the environment. The answer: the seconds since the first request and the CPU seconds of this
process and its descendants after each third of the images, the CPU seconds before the first request, and the sums over
all images. Only the standard library and the reader's own package are imported, because PYTHON may not have others.

All read encoded images and their labels in one process without workers, for one epoch, all bytes over the network:

- webdataset: ``WebDataset(urls, shardshuffle=...)`` as documented, without a shuffle buffer, over the shards of our
  job or over those of its own ShardWriter, whose PAX headers cost it a third more. It has no scheme for S3: its users
  register one, or call a command such as curl with presigned URLs. ``opener`` names the way; the benchmark finds the
  fastest.
- streaming (MosaicML): ``StreamingDataset(remote, local, batch_size=64)``, not shuffled, which is less work. A thread
  downloads shards of 64 MB with boto3 to the local folder, 512 samples ahead (its default). The folder starts empty.
- litdata: ``StreamingDataset(url, cache_dir)``, not shuffled. Threads download chunks of 64 MB with its Rust client
  (obstore), several ranges at a time (its default). The folder starts empty. It reads far ahead, so only a whole epoch
  shows its cost. It returns views of mapped files; the bytes are copied, as decoders must do.
- ours: ``loader.shards.RemoteDataset(client, bucket, folder, seed=0)``, with all defaults.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

Order = Mapping[str, Any]
Answer = dict[str, Any]
Sample = tuple[bytes, int]
"""An encoded image and its label."""

PARTS = 3
_TICKS = os.sysconf("SC_CLK_TCK")


def metered(samples: Iterable[Sample], *, images: int) -> Answer:
    """Read all samples; record time and CPU after each third.

    The id of an image is in its last 16 bytes before the EOI marker. Raises RuntimeError for a wrong number of samples.
    """
    marks = [images * part // PARTS for part in range(PARTS + 1)]
    count = size = labels = ids = 0
    got: list[float] = []
    cpu: list[float] = []
    due, began, before = set(marks[1:]), time.monotonic(), cpu_of_all()
    for data, label in samples:
        count += 1
        size += len(data)
        labels += label
        ids += int.from_bytes(data[-18:-2], "big")
        if count in due:
            got.append(time.monotonic() - began)
            cpu.append(cpu_of_all())
    if count != images:
        raise RuntimeError(f"Wanted {images} pictures. Found: {count}")
    course = {"begun": before, "asked": [0.0, *got[:-1]], "got": got, "cpu": cpu}
    counts = [after - before for before, after in pairwise(marks)]
    sums = {"images": count, "bytes": size, "labels": labels, "ids": ids % (1 << 64)}
    return {**course, "counts": counts, "sums": sums}


def cpu_of_all() -> float:
    """CPU seconds of this process, of its descendants that have ended, and of those that run."""
    return sum(os.times()[:4]) + _cpu_below(Path("/proc/self"))


def _cpu_below(process: Path) -> float:
    total = 0.0
    for task in (process / "task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except OSError:  # a thread that has ended
            continue
        for child in children:
            try:
                fields = Path("/proc", child, "stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, fields[11:15])) / _TICKS + _cpu_below(Path("/proc", child))
            except OSError:  # it has ended
                continue
    return total


def read_webdataset(order: Order) -> Iterator[Sample]:
    """Read shards with webdataset, in random order; samples are in the order of their shard."""
    webdataset: Any = import_module("webdataset")
    urls = [f"s3://{order['bucket']}/{key}" for key in order["keys"]]
    if order["opener"] == "curl":
        client = amazon_client(order["url"])
        places = [{"Bucket": order["bucket"], "Key": key} for key in order["keys"]]
        urls = [client.generate_presigned_url("get_object", Params=place) for place in places]
    else:
        webdataset.gopen_schemes["s3"] = SCHEMES[order["opener"]](order["url"])
    samples = webdataset.WebDataset(urls, shardshuffle=len(urls), seed=0, empty_check=False)
    return ((sample["jpg"], int(sample["cls"])) for sample in samples)


def amazon_client(url: str) -> Any:
    """The client of Amazon's package, for an endpoint."""
    config = import_module("botocore.config").Config(signature_version="s3v4")
    session = import_module("botocore.session").get_session()
    return session.create_client("s3", endpoint_url=url, region_name=os.environ["AWS_REGION"], config=config)


def _s3fs_scheme(url: str) -> Callable[..., Any]:
    files = import_module("s3fs").S3FileSystem(endpoint_url=url)
    return lambda address, mode="rb", bufsize=0, **_: files.open(address, "rb")


def _s3torchconnector_scheme(url: str) -> Callable[..., Any]:
    """Amazon's C client for training, as webdataset's users configure it."""
    package = import_module("s3torchconnector._s3client")
    config = package.S3ClientConfig(force_path_style=True)
    client = package.S3Client(os.environ["AWS_REGION"], endpoint=url, s3client_config=config)

    def open_object(address: str, *rest: Any, **more: Any) -> Any:
        bucket, _, key = address.removeprefix("s3://").partition("/")
        return client.get_object(bucket, key)

    return open_object


SCHEMES: Mapping[str, Callable[[str], Callable[..., Any]]] = {
    "s3fs": _s3fs_scheme,
    "s3torchconnector": _s3torchconnector_scheme,
}
"""Opens ``s3://`` for webdataset, by package."""


def read_streaming(order: Order) -> Iterator[Sample]:
    """Shards of MosaicML's own format, read with its package."""
    os.environ["S3_ENDPOINT_URL"] = order["url"]
    dataset = import_module("streaming").StreamingDataset
    samples = dataset(remote=order["remote"], local=order["local"], batch_size=64)
    return ((sample["jpg"], sample["cls"]) for sample in samples)


def read_litdata(order: Order) -> Iterator[Sample]:
    """Chunks of LitData's own format, read with its package."""
    # Its client rejects endpoints without TLS, and it has no option for that.
    import_module("litdata.streaming.downloader")._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"
    dataset, options = import_module("litdata").StreamingDataset, {"endpoint_url": order["url"]}
    samples = dataset(order["remote"], cache_dir=order["local"], storage_options=options)
    return ((bytes(sample["jpg"]), sample["cls"]) for sample in samples)


def read_ours(order: Order) -> Iterator[Sample]:
    """Our shards, read with `loader.shards`: samples are dictionaries of bytes."""
    shards = import_module("loader.shards")
    client = shards.make_client(order["url"], os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    samples = shards.RemoteDataset(client, order["bucket"], order["folder"], seed=0)
    return ((sample["jpg"], int(sample["cls"])) for sample in samples)


READERS: Mapping[str, tuple[Callable[[Order], Iterator[Sample]], str]] = {
    "webdataset": (read_webdataset, "webdataset"),
    "streaming": (read_streaming, "mosaicml-streaming"),
    "litdata": (read_litdata, "litdata"),
    "ours": (read_ours, "numpy"),
}
"""By name: the reader, and the package whose version is reported."""


def read(order: Order) -> Answer:
    """Read as requested."""
    reader, package = READERS[order["reader"]]
    return {**metered(reader(order), images=order["images"]), "version": version(package)}
