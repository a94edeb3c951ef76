"""Train a small network with Lightning, from Cassandra.

    pip install 'imagestrata[lightning]'
    python training/examples/lightning_classifier.py --split splits/digits --epochs 3
    python training/examples/lightning_classifier.py --split splits/digits --epochs 6 --resume build/lightning/last.ckpt

Index 0 of the split is for training, index 1 for validation. Checkpoints go to --out every --checkpoint-every steps,
with the position of the loader: --resume continues with the next image, also in the middle of an epoch. --devices 2
trains on two GPUs, or in two processes on a CPU.
"""

import argparse
import pickle
import sys
from collections.abc import Sequence
from functools import partial

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

import loader
from formats.command_line import command
from loader.lightning import ClassificationData


class Classifier(lightning.LightningModule):
    """Three convolutions and a linear layer."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
        self.network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * 128, classes))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> torch.Tensor:
        """The loss of one batch."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.network(images), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> None:
        """Top-1 of one batch."""
        images, labels = batch
        right = (self.network(images).argmax(1) == labels).float().mean()
        self.log("top1", right, batch_size=len(labels), sync_dist=True, prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; exits with 2 for bad ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--split", required=True, metavar="DIR", help="a split of class numbers")
    parser.add_argument("--hosts", help="contact points of Cassandra (default: that of `imagestrata up`)")
    parser.add_argument("--port", type=int, help="its port (default: that of `imagestrata up`; with --hosts, 9042)")
    parser.add_argument("--size", type=int, default=32, help="side of the images (default: %(default)s)")
    parser.add_argument("--b", type=int, default=64, help="images of a batch on each rank (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--devices", type=int, default=1, help="GPUs, or processes on a CPU (default: %(default)s)")
    parser.add_argument("--out", default="build/lightning", help="folder of checkpoints (default: %(default)s)")
    parser.add_argument("--checkpoint-every", type=int, default=10, help="steps (default: %(default)s)")
    parser.add_argument("--resume", metavar="FILE", help="a checkpoint to continue from")
    return parser.parse_args(argv)


def check_checkpoint(path: str) -> None:
    """Raise `loader.OptionError` for a file that Lightning cannot continue from."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        is_one = isinstance(found, dict) and "pytorch-lightning_version" in found
    except OSError as error:
        raise loader.OptionError(f"Wanted a checkpoint at {path}. Found: {error.strerror}") from error
    except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError):
        is_one = False
    if not is_one:
        raise loader.OptionError(f"Wanted a checkpoint of Lightning at {path}. Found: another file, or a truncated one")


def run(args: argparse.Namespace) -> float | None:
    """Train; returns the last top-1 of validation, or None if nothing was left to do."""
    if args.resume:
        check_checkpoint(args.resume)
    train, val = (loader.open_split(args.split, index=index) for index in (0, 1))
    make = partial(loader.CassandraSource, hosts=args.hosts and args.hosts.split(","), port=args.port)
    data = ClassificationData(partial(make, train), partial(make, val), batch_size=args.b, size=args.size)
    lightning.seed_everything(0)
    saved = ModelCheckpoint(args.out, save_top_k=0, save_last=True, every_n_train_steps=args.checkpoint_every)
    trainer = lightning.Trainer(max_epochs=args.epochs, devices=args.devices, callbacks=[saved], logger=False)
    trainer.fit(Classifier(train.num_classes), data, ckpt_path=args.resume, weights_only=True)
    found = trainer.callback_metrics.get("top1")
    return None if found is None else float(found)


@command("lightning_classifier.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    top1 = run(parse_args(argv))
    print("nothing was left to train: use more --epochs" if top1 is None else f"top-1 {top1:.2%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
