"""Train a small network to segment images, from Cassandra.

    spark-submit jobs/ingest.py /data/ade/images --masks /data/ade/annotations \\
        --data-table ade.data --metadata-table ade.metadata
    spark-submit jobs/split.py -d ade.data -m ade.metadata -r 9,1 -o splits/ade
    python training/examples/segmentation.py --split splits/ade --classes 151

A mask is an image of one channel whose values are class numbers, as in ADE20K. Image and mask are read together, and
are cropped, resized and mirrored in the same way. DALI turns a phone's photo upright by its EXIF orientation; ingest.py
stores its mask upright too (see --mask-frame). Index 0 of the split is for training, index 1 for validation.
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
    return {"crop": loader.crop_numbers(draws, area=(0.25, 1.0)), "mirror": draws.flips()}


def graph(files: Any, masks: Any, *, size: int, device: str, crop: Any = None, mirror: Any = 0) -> tuple[Any, Any]:
    """Images float32 ``(3, size, size)`` and the classes of their pixels, int64 ``(size, size)``."""
    if crop is not None:
        window = loader.crop_window(crop)
        images = fn.decoders.image_slice(files, **window, device=device, output_type=types.RGB)
        classes = fn.decoders.image_slice(masks, **window, device=device, output_type=types.GRAY)
    else:
        images = fn.decoders.image(files, device=device, output_type=types.RGB)
        classes = fn.decoders.image(masks, device=device, output_type=types.GRAY)
    images = fn.resize(images, size=[size, size], interp_type=types.INTERP_LINEAR)
    classes = fn.resize(classes, size=[size, size], interp_type=types.INTERP_NN)
    images = fn.crop_mirror_normalize(
        images, dtype=types.FLOAT, output_layout="CHW", mean=[127.5] * 3, std=[64.0] * 3, mirror=mirror
    )
    classes = fn.flip(classes, horizontal=mirror)
    return images, fn.cast(fn.squeeze(classes, axes=[2]), dtype=types.INT64)


def network(classes: int) -> nn.Module:
    """Images float32 ``(b, 3, h, w)`` in, logits ``(b, classes, h, w)`` out; the receptive field is 15 pixels wide."""
    layers: list[nn.Module] = []
    for inputs, outputs, dilation in ((3, 32, 1), (32, 64, 2), (64, 64, 4)):
        convolution = nn.Conv2d(inputs, outputs, 3, padding=dilation, dilation=dilation, bias=False)
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(64, classes, 1))


def mean_iou(confusion: torch.Tensor) -> float:
    """Intersection over union, as the mean over the classes that are there; int64 ``(true, said)`` counts of pixels."""
    both = confusion.diag()
    either = confusion.sum(0) + confusion.sum(1) - both
    return float((both[either > 0] / either[either > 0]).mean())


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; exits with 2 for bad ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--split", required=True, metavar="DIR", help="a split of images with masks")
    parser.add_argument("--classes", type=int, required=True, help="the masks' values are below this number")
    parser.add_argument("--hosts", help="contact points of Cassandra (default: that of `imagestrata up`)")
    parser.add_argument("--port", type=int, help="its port (default: that of `imagestrata up`; with --hosts, 9042)")
    parser.add_argument("--size", type=int, default=128, help="side of the images (default: %(default)s)")
    parser.add_argument("--b", type=int, default=16, help="images of a batch (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="(default: %(default)s)")
    return parser.parse_args(argv)


def run(args: argparse.Namespace) -> float:
    """Train; returns the last mean IoU of validation."""
    device_id = 0 if torch.cuda.is_available() else None
    device = torch.device("cpu" if device_id is None else f"cuda:{device_id}")
    place = {"hosts": args.hosts and args.hosts.split(","), "port": args.port, "batch_size": args.b}
    train, val = (loader.open_split(args.split, index=index) for index in (0, 1))
    if train.label_type != "blob":
        raise loader.SplitError(f"Wanted a split of images with masks. Found: {train} with {train.label_type!r} labels")
    torch.manual_seed(0)
    model = network(args.classes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    iou = 0.0
    with loader.CassandraSource(train, **place) as learned, loader.CassandraSource(val, **place, shuffle=False) as kept:
        training, validation = (
            loader.GenericIterator(
                source,
                partial(graph, size=args.size, device="mixed" if device_id == 0 else "cpu"),
                names=["images", "classes"],
                numbers=numbers if source is learned else None,
                device_id=device_id,
                output="torch",
            )
            for source in (learned, kept)
        )
        for epoch in range(args.epochs):
            model.train()
            for batch in training:
                check(batch["classes"], args.classes)
                loss = nn.functional.cross_entropy(model(batch["images"]), batch["classes"])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            model.eval()
            confusion = torch.zeros(args.classes**2, dtype=torch.int64, device=device)
            with torch.inference_mode():
                for batch in validation:
                    check(batch["classes"], args.classes)
                    pairs = batch["classes"] * args.classes + model(batch["images"]).argmax(1)
                    confusion += pairs.flatten().bincount(minlength=args.classes**2)
            iou = mean_iou(confusion.view(args.classes, args.classes))
            print(f"epoch {epoch + 1}/{args.epochs}  loss {loss.item():.3f}  mean IoU {iou:.3f}", flush=True)
    return iou


def check(classes: torch.Tensor, number: int) -> None:
    """Raise `loader.OptionError` for a class that the model does not have."""
    if (found := int(classes.max())) >= number:
        raise loader.OptionError(f"Wanted masks with values below --classes {number}. Found: {found}")


@command("segmentation.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    run(parse_args(argv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
