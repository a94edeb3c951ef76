"""The options of training/train.py."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from formats.command_line import port
from formats.metrics import HOST
from training import command_line

MANUAL = """Train a torchvision classifier from Cassandra, shards or class folders, on CPUs or any number of GPUs.

examples:
  torchrun --nproc_per_node=2 training/train.py --split splits/imagenette -a resnet50 --b 128 --workers 4 --lr 0.4
  torchrun --nproc_per_node=2 training/train.py --split-fn imagenette.pckl --train-index 1 --val-index 0 -a resnet50
  torchrun --nproc_per_node=2 training/train.py -a resnet50 \\
      --train-data-table imagenette.data_train --train-rows-fn train.rows \\
      --val-data-table imagenette.data_val --val-rows-fn val.rows
  torchrun --nproc_per_node=2 training/train.py -a resnet50 /data/imagenette/train /data/imagenette/val
  torchrun --nproc_per_node=2 training/train.py -a resnet50 \\
      --train-shards s3://bucket/imagenette-train --val-shards s3://bucket/imagenette-val
  torchrun --nproc_per_node=2 training/train.py --split splits/imagenette --resume

The image options choose where the images come from; everything else works the same for all sources. Tables and class
folders with the same ids and seed are read in the same order (see --dataset). Every image is used once per epoch,
except for less than one batch of all ranks at its end.

The checkpoint has the model, the optimiser and the position of the loader. It is written after each epoch, every
--checkpoint-every steps, and on SIGTERM or Ctrl-C, which end the run after the current step. --resume continues with
the next image, on the same or another number of ranks.

Options of apex, and what they do here (torch.amp):
  --opt-level O0         float32 only
  --opt-level O1, O2     mixed precision: float16 on GPUs, bfloat16 on CPUs that support it, else float32 (the output
                         says so); O2 uses the channels-last layout
  --loss-scale N         scales the loss of float16 by N; "dynamic" adapts the scale so that it does not overflow

Cassandra's user and TLS come from the environment: IMAGESTRATA_USERNAME, IMAGESTRATA_PASSWORD_FILE, IMAGESTRATA_CA.
So do S3's endpoint and keys: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY.

exit codes (torchrun has its own: 1 if it was stopped):
  0  trained, or stopped by a signal with a checkpoint
  1  failed; one line says why
  2  bad arguments
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """The options of a training. Raises ValueError for values that are out of range or do not go together."""

    data: tuple[str, ...] = ()
    dataset: str = ""
    class_level: Literal["top"] | None = None
    split: str | None = None
    train_index: int = 0
    val_index: int = 1
    train_data_table: str | None = None
    train_rows_fn: str | None = None
    val_data_table: str | None = None
    val_rows_fn: str | None = None
    train_shards: str | None = None
    val_shards: str | None = None
    validate_on_training: bool = False
    classes: int | None = None
    hosts: tuple[str, ...] | None = None
    port: int | None = None
    on_changed: Literal["raise", "accept"] = "raise"
    arch: str = "resnet50"
    size: int = 224
    transforms: str | None = None
    compile: bool = False
    epochs: int = 90
    batch_size: int = 128
    lr: float = 0.1
    warmup: float = 5.0
    momentum: float = 0.9
    weight_decay: float = 1e-4
    label_smoothing: float = 0.0
    seed: int = 0
    sampling: Literal["shuffled", "stratified", "balanced"] = "shuffled"
    class_weights: Mapping[str, float] | None = None
    evaluate: bool = False
    device: str = "auto"
    workers: int = 4
    dali_cpu: bool = False
    on_undecodable: str = "raise"
    on_missing: str = "raise"
    opt_level: str = "O0"
    loss_scale: str = "dynamic"
    checkpoint: str = "checkpoint.pt"
    checkpoint_every: int = 0
    resume: str | None = None
    print_freq: int = 10
    figures: str | None = None
    trace: str | None = None
    metrics_port: int | None = None
    metrics_host: str = HOST

    def __post_init__(self) -> None:
        self._check_data()
        for name in ("size", "epochs", "batch_size", "workers", "print_freq"):
            if getattr(self, name) < 1:
                raise ValueError(f"Wanted --{name.replace('_', '-')} of 1 or more. Found: {getattr(self, name)}")
        if self.checkpoint_every < 0:
            raise ValueError(f"Wanted --checkpoint-every of 0 or more. Found: {self.checkpoint_every}")
        for name in ("lr", "warmup", "momentum", "weight_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"Wanted --{name.replace('_', '-')} of 0 or more. Found: {getattr(self, name)}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"Wanted --label-smoothing from 0 to below 1. Found: {self.label_smoothing}")
        if self.loss_scale != "dynamic" and not (_number(self.loss_scale) > 0):
            raise ValueError(f"Wanted --loss-scale as a number above 0, or dynamic. Found: {self.loss_scale!r}")
        if self.classes is not None and self.classes < 1:
            raise ValueError(f"Wanted --classes of 1 or more. Found: {self.classes}")

    @property
    def kind(self) -> str:
        """Where images come from: "folders", "shards" or "tables"."""
        return "folders" if self.data else "shards" if self.train_shards else "tables"

    def _check_data(self) -> None:
        rows, shards = (self.train_rows_fn, self.val_rows_fn), (self.train_shards, self.val_shards)
        given = {
            "TRAIN_DIR VAL_DIR": bool(self.data),
            "--split": bool(self.split),
            "--train-rows-fn": any(rows),
            "--train-shards": any(shards),
        }
        names = [name for name, is_given in given.items() if is_given]
        if len(names) != 1:
            raise ValueError(
                "Wanted one source of images: TRAIN_DIR VAL_DIR, or --split, or --train-rows-fn and --val-rows-fn, or "
                "--train-shards and --val-shards. "
                f"Found: {' and '.join(names) or 'none'}"
            )
        if self.data and len(self.data) != 2:
            raise ValueError(f"Wanted two folders, TRAIN_DIR VAL_DIR. Found: {' '.join(self.data)}")
        if any(rows) and not all(rows):
            raise ValueError("Wanted --train-rows-fn and --val-rows-fn. Found: one of them")
        if any(shards) and not all(shards):
            raise ValueError("Wanted --train-shards and --val-shards. Found: one of them")
        if (self.train_data_table or self.val_data_table) and not any(rows):
            raise ValueError("Wanted data tables with row lists. Found: a data table without --train-rows-fn")
        if self.dataset and not self.data:
            raise ValueError("Wanted --dataset with TRAIN_DIR VAL_DIR. Found: another source, which has ids already")
        if any(shards) and self.on_missing != "raise":
            raise ValueError("Wanted --on-missing with images that are read one by one. Found: shards.")
        if (any(shards) or self.data) and self.on_changed != "raise":
            raise ValueError("Wanted --on-changed with a split or row lists. Found: another source")
        if any(shards) and (self.sampling != "shuffled" or self.class_weights):
            raise ValueError(
                "Wanted --sampling and --class-weight with images that are read one by one. Found: shards, which are "
                "read in pieces. Pack shards of a balanced split instead."
            )
        if self.class_level and not self.data:
            raise ValueError("Wanted --class-level with TRAIN_DIR VAL_DIR. Found: another source")
        for name in ("train_index", "val_index"):
            if getattr(self, name) < 0:
                raise ValueError(f"Wanted --{name.replace('_', '-')} of 0 or more. Found: {getattr(self, name)}")
        if self.split and self.train_index == self.val_index and not self.validate_on_training:
            raise ValueError(
                f"Wanted different splits for training and validation. Found: index {self.train_index} for both. "
                "Use --validate-on-training if you want that."
            )


def parse_args(argv: Sequence[str] | None = None) -> TrainOptions:
    """Parse a command line; exit with 2 for bad options."""
    parser = command_line.ScriptParser("train.py", manual=MANUAL)
    groups = {"images": _data, "model": _model, "training": _training, "devices": _devices, "results": _results}
    for name, fill in groups.items():
        fill(parser.add_argument_group(name).add_argument)
    parser.set_defaults(**{field.name: field.default for field in fields(TrainOptions)})
    args = vars(parser.parse_args(argv))
    try:
        weights = args["class_weights"] and dict(args["class_weights"])
        if weights and len(weights) < len(args["class_weights"]):
            raise ValueError("Wanted each class once in --class-weight. Found: a class twice")
        return TrainOptions(**{**args, "data": tuple(args["data"]), "class_weights": weights})
    except ValueError as error:
        parser.error(str(error))


def _data(add: Callable[..., Any]) -> None:
    add("data", nargs="*", metavar="TRAIN_DIR VAL_DIR", help="two trees of class folders on a disk")
    add(
        "--dataset",
        metavar="NAME",
        help="the name under which the trees were ingested; images then have the ids of "
        "the tables, and the order of a row list with the same seed",
    )
    add(
        "--class-level",
        choices=("top",),
        help="top: use the topmost folders as classes even if the classes seem to be deeper",
    )
    command_line.add_split(add)
    add("--train-index", **_WHOLE, help="the split to train on (default: 0)")
    add("--val-index", **_WHOLE, help="the split to validate on (default: 1)")
    for side in ("train", "val"):
        add(f"--{side}-rows-fn", metavar="FOLDER", help=f"a row list of jobs/cache_rows.py, to {_VERBS[side]} on")
        add(f"--{side}-data-table", metavar="KS.TABLE", help="the table of its images (default: as in the row list)")
    for side in ("train", "val"):
        add(
            f"--{side}-shards",
            metavar="PLACE",
            help=f"shards to {_VERBS[side]} on: a folder, or s3://bucket/prefix, that jobs/shard.py wrote",
        )
    add(
        "--on-undecodable",
        choices=("raise", "skip"),
        help="fail at an image that cannot be decoded, or leave it out (default: %(default)s)",
    )
    add(
        "--on-missing",
        choices=("raise", "skip"),
        help="fail at an image that is missing or was deleted, or leave it out; at most 1%% of an epoch may be "
        "missing; deleted images do not count (default: %(default)s)",
    )
    add("--validate-on-training", action="store_true", help="allow the same images for training and validation")
    add("--classes", **_WHOLE, help="the outputs of the model (default: the number of classes in the data)")
    command_line.add_cassandra(add)


_VERBS = {"train": "train", "val": "validate"}
_WHOLE: dict[str, Any] = {"type": int, "metavar": "N"}
_REAL: dict[str, Any] = {"type": float, "metavar": "X"}


def _model(add: Callable[..., Any]) -> None:
    add(
        "-a",
        "--arch",
        metavar="NAME",
        help="a torchvision classifier, or MODULE:FUNCTION that makes a model for a number of classes "
        "(default: %(default)s)",
    )
    add("--size", **_WHOLE, help="height and width of images in pixels (default: %(default)s)")
    add(
        "--transforms",
        metavar="MODULE:FUNCTION",
        help="replaces crop and normalisation after decoding: function(images, *, train, size) "
        "gets DALI's uint8 HWC images and returns float CHW images",
    )
    add("--compile", action="store_true", help="torch.compile the model")


def _training(add: Callable[..., Any]) -> None:
    add("--epochs", **_WHOLE, help="passes over the images (default: %(default)s)")
    command_line.add_batch_size(add)
    add(
        "--lr",
        "--learning-rate",
        **_REAL,
        help="the learning rate for a global batch of 256 images; "
        "it is scaled with the global batch size (default: %(default)s)",
    )
    add(
        "--warmup",
        type=float,
        metavar="N",
        help="epochs in which the learning rate rises from 0; then it follows a cosine (default: %(default)s)",
    )
    add("--momentum", **_REAL, help="momentum of SGD (default: %(default)s)")
    add("--weight-decay", "--wd", **_REAL, help="(default: %(default)s)")
    add("--label-smoothing", **_REAL, help="(default: %(default)s)")
    add("--seed", **_WHOLE, help="the seed of weights, order and crops (default: %(default)s)")
    add(
        "--sampling",
        choices=("shuffled", "stratified", "balanced"),
        help="stratified: each global batch has the same share of each class; balanced: as many places of each class "
        "in an epoch and in each global batch as of any other (default: %(default)s)",
    )
    add(
        "--class-weight",
        dest="class_weights",
        action="append",
        type=_class_weight,
        metavar="CLASS=X",
        help="balanced, but with this weight for a class, by name or number, instead of 1; repeatable; 0 leaves it out",
    )
    add("-e", "--evaluate", action="store_true", help="only validate, once; use it with --resume")


def _devices(add: Callable[..., Any]) -> None:
    command_line.add_device(add, usual="auto, a GPU if there is one")
    command_line.add_workers(add)
    add("--dali_cpu", "--dali-cpu", action="store_true", help="decode on the CPU even if the model is on a GPU")
    add("--opt-level", choices=("O0", "O1", "O2"), help="precision, see above (default: O0)")
    add("--loss-scale", metavar="N", help="see above (default: dynamic)")


def _results(add: Callable[..., Any]) -> None:
    add("--checkpoint", metavar="FILE", help="(default: %(default)s)")
    add(
        "--checkpoint-every",
        type=int,
        metavar="STEPS",
        help="write it within epochs, too (default: 0, only at their ends)",
    )
    add("--resume", nargs="?", const="", metavar="FILE", help="continue from a checkpoint (default: the --checkpoint)")
    add("--print-freq", "-p", type=int, metavar="STEPS", help="(default: %(default)s)")
    add("--figures", metavar="FILE", help="append the figures of each epoch as a line of JSON")
    add("--trace", metavar="FILE", help="append loss and image ids of each step as a line of JSON, to FILE.RANK")
    add(
        "--metrics-port",
        type=port,
        metavar="N",
        help="serve metrics of reading the training images to Prometheus: at this port for the first process of a "
        "machine, at the following ports for others",
    )
    add("--metrics-host", metavar="ADDRESS", help="address to serve them at (default: %(default)s)")


def _class_weight(text: str) -> tuple[str, float]:
    name, _, weight = text.rpartition("=")
    if not name or not 0 <= _number(weight) < math.inf:
        raise argparse.ArgumentTypeError(f"Wanted CLASS=X with a number X of 0 or more. Found: {text!r}")
    return name, float(weight)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
