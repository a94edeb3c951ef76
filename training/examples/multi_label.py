"""Train a small network that predicts several labels for each image, from Cassandra.

    spark-submit jobs/ingest.py /data/corel --arrays /data/corel \\
        --data-table corel.data --metadata-table corel.metadata
    spark-submit jobs/split.py -d corel.data -m corel.metadata -r 9,1 -o splits/corel
    python training/examples/multi_label.py --split splits/corel --labels 374

The labels of an image are an array of zeros and ones, as in Corel. They are read together with the image, and DALI
decodes both. Index 0 of the split is for training, index 1 for validation.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from nvidia.dali import fn, types
from torch import nn

import loader
from formats.command_line import command


def numbers(draws: loader.Draws) -> dict[str, Any]:
    """The random numbers of a batch: the same for a sample of an epoch after any resume."""
    return {"crop": loader.crop_numbers(draws), "mirror": draws.flips()}


def graph(files: Any, arrays: Any, *, size: int, is_on_gpu: bool, crop: Any = None, mirror: Any = 0) -> tuple[Any, Any]:
    """Images float32 ``(3, size, size)`` and labels float32 ``(labels,)``."""
    how: dict[str, Any] = {"device": "mixed" if is_on_gpu else "cpu", "output_type": types.RGB}
    if crop is not None:
        window = loader.crop_window(crop)
        images = fn.decoders.image_slice(files, **window, **how)
    else:
        images = fn.decoders.image(files, **how)
    images = fn.crop_mirror_normalize(
        fn.resize(images, size=[size, size]),
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=[127.5] * 3,
        std=[64.0] * 3,
        mirror=mirror,
    )
    labels = fn.reshape(fn.decoders.numpy(arrays, dtype=types.FLOAT), shape=[-1])
    return images, labels.gpu() if is_on_gpu else labels


def network(labels: int) -> nn.Module:
    """Images float32 ``(b, 3, h, w)`` in, logits ``(b, labels)`` out."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(128, labels))


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; exits with 2 for bad ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--split", required=True, metavar="DIR", help="a split of images with label arrays")
    parser.add_argument("--labels", type=int, required=True, help="the length of each array")
    parser.add_argument("--hosts", help="contact points of Cassandra (default: that of `imagestrata up`)")
    parser.add_argument("--port", type=int, help="its port (default: that of `imagestrata up`; with --hosts, 9042)")
    parser.add_argument("--size", type=int, default=64, help="side of the images (default: %(default)s)")
    parser.add_argument("--b", type=int, default=32, help="images of a batch (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="(default: %(default)s)")
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> float:
    """Train; returns the last F1 of validation, over all labels, with a threshold of one half."""
    device_id = 0 if torch.cuda.is_available() else None
    device = torch.device("cpu" if device_id is None else f"cuda:{device_id}")
    place = {"hosts": args.hosts and args.hosts.split(","), "port": args.port, "batch_size": args.b}
    train, val = (loader.open_split(args.split, index=index) for index in (0, 1))
    if train.label_type != "multi":
        raise loader.SplitError(f"Wanted a split with label arrays. Found: {train} with {train.label_type!r} labels")
    torch.manual_seed(0)
    model = network(args.labels).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    f1 = 0.0
    with loader.CassandraSource(train, **place) as learned, loader.CassandraSource(val, **place, shuffle=False) as kept:
        training, validation = (
            loader.GenericIterator(
                source,
                partial(graph, size=args.size, is_on_gpu=device_id is not None),
                names=["images", "labels"],
                numbers=numbers if source is learned else None,
                device_id=device_id,
                output="torch",
            )
            for source in (learned, kept)
        )
        for epoch in range(args.epochs):
            model.train()
            for batch in training:
                labels = checked(batch["labels"], args.labels)
                loss = nn.functional.binary_cross_entropy_with_logits(model(batch["images"]), labels)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            model.eval()
            right = said = there = 0
            with torch.inference_mode():
                for batch in validation:
                    true, likely = checked(batch["labels"], args.labels) > 0, model(batch["images"]) > 0
                    right += int((true & likely).sum())
                    said, there = said + int(likely.sum()), there + int(true.sum())
            f1 = 2 * right / max(said + there, 1)
            print(f"epoch {epoch + 1}/{args.epochs}  loss {loss.item():.3f}  F1 {f1:.3f}", flush=True)
    return f1


def checked(labels: Any, number: int) -> torch.Tensor:
    """The labels, if each image has this number of zeros and ones. Raises `loader.OptionError` if not."""
    lengths = {len(one) for one in labels}
    if lengths != {number}:
        raise loader.OptionError(
            f"Wanted arrays of --labels {number} numbers. Found: {', '.join(map(str, sorted(lengths)))}"
        )
    if not ((labels == 0) | (labels == 1)).all():
        raise loader.OptionError("Wanted arrays of zeros and ones. Found: class numbers")
    found: torch.Tensor = labels
    return found


@command("multi_label.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    run(parse_args(argv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
