"""Train a small network from the demo's batches: from Cassandra, through DALI, on the CPU or on a GPU.

    make train-demo

Runs the demo first if there is no split of it yet. The last line is one JSON object with the validation accuracy.
"""

import argparse
import json
import sys
from collections.abc import Sequence

import torch
from rich.console import Console
from torch import nn

import loader
from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control
from etl.errors import EtlError
from imagestrata.demo import journey as demo
from imagestrata.devstack import DevstackError
from schemas import TableName

SIZE = 32


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; exits with 2 for bad ones."""
    parser = argparse.ArgumentParser(
        prog="python -m imagestrata.demo.train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--epochs", type=int, default=8, help="passes over split 0 (default: 8)")
    return parser.parse_args(argv)


def network(classes: int) -> nn.Module:
    """Three convolutions and a linear layer: pictures float32 ``(b, 3, 32, 32)`` in, logits ``(b, classes)`` out."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * 128, classes))


def train(epochs: int, console: Console) -> dict[str, float | int]:
    """Train on split 0, measure on split 1 after each epoch; returns the last accuracy and the image counts."""
    port = demo.start_cassandra(None, console)
    with Control(Cluster(hosts=("127.0.0.1",), port=port)) as control:
        is_filled = control.columns(TableName(demo.KEYSPACE, "data")) is not None
    if not (is_filled and (demo.SPLIT / "_manifest.json").is_file()):
        demo.run()
    device_id = 0 if torch.cuda.is_available() else None
    device = torch.device("cpu" if device_id is None else f"cuda:{device_id}")
    torch.manual_seed(7)
    accuracy = 0.0
    with (
        source(0, port=port, shuffle=True) as learned,
        source(1, port=port, shuffle=False) as held_out,
    ):
        model = network(learned.split.num_classes).to(device)
        optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=epochs * len(learned))
        # A digit is another one, or none, in a mirror, and when much of it is cut off.
        training, validation = (
            loader.ClassificationIterator(
                one,
                size=SIZE,
                train=one is learned,
                crop_area=(0.8, 1.0),
                mirror=False,
                device_id=device_id,
                num_threads=2,
                output="torch",
            )
            for one in (learned, held_out)
        )
        for epoch in range(epochs):
            model.train()
            for images, labels in training:
                loss = nn.functional.cross_entropy(model(images), labels)
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
            model.eval()
            with torch.inference_mode():
                right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in validation)
            accuracy = right / len(held_out.split)
            console.print(f"epoch {epoch + 1}/{epochs}  loss {loss.item():.3f}  validation accuracy {accuracy:.4f}")
        return {
            "train_images": len(learned.split),
            "val_images": len(held_out.split),
            "epochs": epochs,
            "val_accuracy": round(accuracy, 4),
        }


def source(index: int, *, port: int, shuffle: bool) -> loader.CassandraSource:
    """The images of one split of the demo."""
    split = loader.open_split(demo.SPLIT, index=index)
    return loader.CassandraSource(split, hosts=["127.0.0.1"], port=port, batch_size=64, seed=7, shuffle=shuffle)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    args = parse_args(argv)
    try:
        print(json.dumps(train(args.epochs, Console(stderr=True, highlight=False))), flush=True)
    except (demo.DemoError, DevstackError, EtlError, loader.LoaderError) as error:
        print(f"train-demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
