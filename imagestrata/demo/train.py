"""Train a small network on the demo's images: from Cassandra, through DALI, on the CPU or a GPU.

  make train-demo

Runs the demo first if its split does not exist. The last line is one JSON object with the validation accuracy.

exit codes: 0 done, 1 failed, 2 bad arguments
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from formats.command_line import Parser, command

if TYPE_CHECKING:
    import torch
    from rich.console import Console
    from torch import nn

    import loader

SIZE = 32


def parser() -> Parser:
    """The options."""
    made = Parser("python -m imagestrata.demo.train", manual=__doc__)
    made.add_argument("--epochs", type=int, default=8, metavar="N", help="passes over split 0 (default: 8)")
    return made


def network(classes: int) -> "nn.Module":
    """Make a network of three convolutions and a linear layer, from float32 of shape ``(b, 3, 32, 32)`` to logits of
    shape ``(b, classes)``.
    """
    from torch import nn

    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * 128, classes))


def learn(
    model: "nn.Module",
    batches: Iterable[tuple["torch.Tensor", "torch.Tensor"]],
    optimiser: "torch.optim.Optimizer",
    schedule: "torch.optim.lr_scheduler.LRScheduler",
) -> float:
    """Train for one epoch; returns the loss of the last batch."""
    from torch import nn

    model.train()
    for images, labels in batches:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    return loss.item()


def correct(model: "nn.Module", batches: Iterable[tuple["torch.Tensor", "torch.Tensor"]]) -> int:
    """Count the images that a model classifies correctly."""
    import torch

    model.eval()
    with torch.inference_mode():
        return sum(int((model(images).argmax(1) == labels).sum()) for images, labels in batches)


def train(epochs: int, console: "Console") -> dict[str, float | int]:
    """Train on split 0, validate on split 1 after each epoch, and return the numbers of images and epochs and the last
    accuracy.
    """
    import torch

    import loader
    from imagestrata.demo import journey as demo
    from imagestrata.registry import control_at
    from schemas import TableName

    port = demo.start_cassandra(None, console)
    with control_at(["127.0.0.1"], port, access=loader.Access()) as control:
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
        # A digit that is mirrored or mostly cut off looks like another one, or like none.
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
            loss = learn(model, training, optimiser, schedule)
            accuracy = correct(model, validation) / len(held_out.split)
            console.print(f"epoch {epoch + 1}/{epochs}  loss {loss:.3f}  validation accuracy {accuracy:.4f}")
        return {
            "train_images": len(learned.split),
            "val_images": len(held_out.split),
            "epochs": epochs,
            "val_accuracy": round(accuracy, 4),
        }


def source(index: int, *, port: int, shuffle: bool) -> "loader.CassandraSource":
    """The images of one split of the demo."""
    import loader
    from imagestrata.demo import journey as demo

    split = loader.open_split(demo.SPLIT, index=index)
    return loader.CassandraSource(split, hosts=["127.0.0.1"], port=port, batch_size=64, seed=7, shuffle=shuffle)


@command("train-demo")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = parser().parse_args(argv)
    from rich.console import Console

    print(json.dumps(train(args.epochs, Console(stderr=True, highlight=False))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
