"""The commands `imagestrata replay` and `imagestrata seen`: which images a training has seen, and when."""

import argparse
import json
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats.command_line import Parser, command, port
from schemas.errors import ImagestrataError

if TYPE_CHECKING:
    from loader import History, Replayed, Shards, Split

_STATES = """CHECKPOINT is a checkpoint of train.py or Lightning, or a file of torch.save or JSON with the state of a
source. Images are those of the split that the checkpoint of train.py names, unless --split, --rows-fn, --folder or
--shards names them. Nothing was logged for this: a state names the runs that led to it, and the order of each epoch is
computed. What is not known is listed at the end."""
_REPLAY = f"""Show which images the batches of a training had.

  imagestrata replay checkpoint.pt --epoch 3 --steps 1200:1210
  imagestrata replay checkpoint.pt --epoch 3 --steps 1203 --sheet spike.png --crops
  imagestrata replay state.json --split splits/digits --index 0 --epoch 0 --steps 0:2 --json

A line for each image: epoch, step, rank, id and class. --sheet reads the first 64 and shows them on one picture, as
they are stored or, with --crops, as the model saw them. Shards have no positions to choose by, so they have no sheet.

{_STATES}

exit codes: 0 done; 1 failed, or no such step; 2 bad arguments"""
_SEEN = f"""Show at which steps a training has seen an image, and which checkpoint is the last that had not.

  imagestrata seen 7c743c2e-685c-55f2-9f8b-e10df2a8a6a6 checkpoint.pt
  imagestrata seen 7c743c2e-685c-55f2-9f8b-e10df2a8a6a6 checkpoints/*.pt --json
  imagestrata seen 1203 state.json --shards s3://bucket/imagenette

IMAGE is an id, or the position in the split; for shards, the position.

{_STATES}

With sources that leave out missing images, join the states of all ranks (loader.merge_states), as train.py does.

exit codes: 0 done, also if it was not seen; 1 failed; 2 bad arguments"""


def replay_parser() -> Parser:
    """The options of `imagestrata replay`."""
    made = Parser("imagestrata replay", manual=_REPLAY)
    made.add_argument("checkpoint", metavar="CHECKPOINT", help="the state of the training")
    made.add_argument("--epoch", type=int, required=True, metavar="N", help="the epoch, from 0")
    made.add_argument("--steps", type=_steps, required=True, metavar="A:B", help="steps A to B-1, or one step; from 0")
    made.add_argument("--sheet", metavar="FILE", help="write a picture of the images")
    made.add_argument(
        "--crops", type=_size, nargs="?", const=0, metavar="SIZE",
        help="with --sheet: the very crops of this size that loader.ClassificationIterator gave in training, with its "
        "default crop_area and mirror (default: the size of train.py)",
    )  # fmt: skip
    _add_images(made)
    made.add_argument("--host", metavar="HOST,...", help="for --sheet: hosts of Cassandra (default: `imagestrata up`)")
    made.add_argument("--port", type=port, metavar="N", help="for --sheet: the port of Cassandra")
    return made


def seen_parser() -> Parser:
    """The options of `imagestrata seen`."""
    made = Parser("imagestrata seen", manual=_SEEN)
    made.add_argument("image", metavar="IMAGE", help="the id of an image, or its position")
    made.add_argument("checkpoints", metavar="CHECKPOINT", nargs="+", help="states of one training")
    _add_images(made)
    return made


@command("error")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first word names; returns the exit code."""
    name, *rest = list(sys.argv[1:] if argv is None else argv)
    make, act = _COMMANDS[name]
    options = make()
    args = options.parse_args(rest)
    if sum(bool(getattr(args, one)) for one in _PLACES) > 1:
        options.error("wanted one of --split, --rows-fn, --folder and --shards. Found: several")
    if getattr(args, "crops", None) is not None and args.sheet is None:
        options.error("wanted --sheet FILE with --crops. Found: no --sheet")
    return act(args)


_PLACES = ("split", "rows_fn", "folder", "shards")


def _add_images(made: Parser) -> None:
    add = made.add_argument
    add("--split", metavar="SPLIT", help="the split folder or split dictionary that was read")
    add("--index", type=int, metavar="N", help="which of its splits (default: that of the checkpoint, or 0)")
    add("--rows-fn", metavar="FILE", help="the row list that was read")
    add("--folder", metavar="DIR", help="the class folders that were read")
    add("--shards", metavar="FOLDER", help="the shards that were read")
    add("--json", action="store_true", help="print JSON")


def _steps(text: str) -> range:
    begin, colon, end = text.partition(":")
    try:
        found = range(int(begin), int(end) if colon else int(begin) + 1)
    except ValueError:
        found = range(0)
    if not found or found.start < 0:
        raise argparse.ArgumentTypeError(f"wanted A:B with A below B, or one step. Found: {text!r}")
    return found


def _size(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"wanted a size of at least 1 pixel. Found: {text!r}")
    return int(text)


def _replay(args: argparse.Namespace) -> int:
    history, images, options = next(_histories(args, [args.checkpoint]))
    found = history.replay(args.epoch, args.steps)
    if not found:
        known = f" Not known: {'; '.join(history.unknown)}." if history.unknown else ""
        raise ImagestrataError(
            f"Wanted steps {args.steps.start} to {args.steps.stop - 1} of epoch {args.epoch}. "
            f"Found: no such step before {args.checkpoint} was saved.{known}"
        )
    if args.sheet is not None:
        _draw(args, history, found, options)
    if args.json:
        _write(json.dumps({"batches": [_as_dict(one) for one in found], "unknown": history.unknown}))
        return 0
    _write("epoch  step  rank  image" + " " * 33 + "class")
    labels = images.labels
    for batch in found:
        for place, position in enumerate(batch.positions.tolist()):
            image = str(uuid.UUID(bytes=batch.ids[place].tobytes())) if len(batch.ids) else f"sample {position}"
            label = "" if labels is None or not len(labels) else int(labels[position])
            name = images.class_names.get(label, "") if isinstance(label, int) else ""
            sign = "" if batch.is_exact else "  (not certain)"
            at = f"{batch.epoch:5}  {batch.step:4}  {batch.rank:4}"
            _write(f"{at}  {image:36}  {f'{label} {name}'.strip()}{sign}".rstrip())
    _say_unknown(history, args.checkpoint)
    return 0


def _draw(
    args: argparse.Namespace, history: "History", found: "Sequence[Replayed]", options: Mapping[str, Any]
) -> None:
    """Write a picture of the first images of batches."""
    where: dict[str, Any] = {"hosts": args.host.split(",") if args.host else None, "port": args.port}
    given = {name: value for name, value in where.items() if value is not None}
    if args.crops is not None:
        given["size"] = _size_of(args, options)
    try:
        history.show(found, **given).save(args.sheet)
    except ImagestrataError:
        raise
    except OSError as error:
        raise ImagestrataError(f"Wanted to write a picture to {args.sheet}. Found: {error.strerror or error}") from None
    except ValueError as error:  # no format has this ending
        raise ImagestrataError(f"Wanted to write a picture to {args.sheet}. Found: {error}. Name it *.png.") from None


def _size_of(args: argparse.Namespace, options: Mapping[str, Any]) -> int:
    """The size of crops. Raises `ImagestrataError` if nobody knows it."""
    if options.get("transforms"):
        raise ImagestrataError(
            f"Wanted a training with the crops of loader.ClassificationIterator. Found: --transforms "
            f"{options['transforms']} in {args.checkpoint}. Leave out --crops to see the images as they are stored."
        )
    if size := args.crops or options.get("size"):
        return int(size)
    raise ImagestrataError(f"Wanted --crops SIZE. Found: --crops, and {args.checkpoint} does not name the size.")


def _seen(args: argparse.Namespace) -> int:
    is_position = args.image.isdecimal() and len(args.image) < 32  # an id without hyphens may have digits alone
    image: int | str = int(args.image) if is_position else args.image
    results = []
    for path, (history, *_) in zip(args.checkpoints, _histories(args, args.checkpoints), strict=True):
        seen = history.seen(image)
        results.append(((history.runs, *history.delivered), path, seen, history))
    results.sort(key=lambda one: one[0])
    # Of a checkpoint with a gap in its past, nobody knows.
    last_without = next((path for _, path, seen, one in reversed(results) if not seen and not one.unknown), None)
    if args.json:
        rows = [
            {"checkpoint": path, "seen": [_as_dict(one) for one in seen], "unknown": history.unknown}
            for _, path, seen, history in results
        ]
        _write(json.dumps({"image": args.image, "checkpoints": rows, "last_without": last_without}))
        return 0
    _, newest, seen, history = results[-1]
    for one in seen:
        _write(f"epoch {one.epoch}  step {one.step}  rank {one.rank}{'' if one.is_exact else '  (not certain)'}")
    times = f"{len(seen)} times" if len(seen) != 1 else "once"
    _write(f"{newest}: image {args.image} was seen {times if seen else 'at no step'}")
    if len(results) > 1:
        _write(f"the last checkpoint that had certainly not seen it: {last_without or 'none of these'}")
    for _, path, _, its_history in results:
        _say_unknown(its_history, path)
    return 0


def _say_unknown(history: "History", path: str) -> None:
    for one in history.unknown:
        _write(f"not known of {path}: {one}")


def _histories(
    args: argparse.Namespace, paths: Sequence[str]
) -> "Iterator[tuple[History, Split | Shards, Mapping[str, Any]]]":
    """The histories of states in files, their images, which are opened once, and the options of train.py."""
    from loader import History

    images: Split | Shards | None = None
    first: Mapping[str, Any] = {}
    for path in paths:
        found = _stored(path)
        state = _state_in(found, path)
        if images is None:
            images, first = _images(args, found.get("options") or {}, path), state
        if any(state.get(name) != first.get(name) for name in ("seed", "shuffle", "sampling")):
            raise ImagestrataError(
                f"Wanted checkpoints of one training. Found: {path}, of another one than {paths[0]}: it has another "
                "seed or order. Give those of each training apart."
            )
        yield History(images, state), images, found.get("options") or {}


def _stored(path: str) -> Mapping[str, Any]:
    """What a file has: of JSON, or of torch.save, without running code from it. Raises `ImagestrataError`."""
    wanted = f"Wanted a checkpoint, or a state as JSON, in {path}."
    try:
        data = Path(path).read_bytes()[:1]
        if data == b"{":
            found = json.loads(Path(path).read_text(encoding="utf-8"))
        else:
            from loader.errors import require

            found = require("torch", extra="train", purpose="reading checkpoints").load(
                path, map_location="cpu", weights_only=True
            )
    except OSError as error:
        raise ImagestrataError(f"{wanted} Found: {error.strerror or error}") from None
    except ImagestrataError:
        raise
    except Exception as error:  # torch raises many, and advises to run the code in the file
        raise ImagestrataError(f"{wanted} Found: another file, or a damaged one ({type(error).__name__})") from None
    if not isinstance(found, Mapping):
        raise ImagestrataError(f"{wanted} Found: {type(found).__name__}")
    return found


def _state_in(found: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The only state of a source in a file. Raises `ImagestrataError` for none and for several."""
    states = [*_states_in(found, depth=3)]
    if len(states) == 1:
        return states[0]
    raise ImagestrataError(
        f"Wanted one state of a source in {path}, as state_dict() gives it. Found: {len(states) or 'none'} in "
        f"{', '.join(map(str, found)) or 'an empty file'}. Save the state of the training images alone."
    )


def _states_in(found: Mapping[Any, Any], *, depth: int) -> Iterator[Mapping[str, Any]]:
    if {"worker", "workers", "begin"} <= found.keys():
        raise ImagestrataError(
            "Wanted a state of a source. Found: one of torchdata's StatefulDataLoader, which does not say what its "
            "workers have delivered. Save source.state_dict(epoch=..., steps=...) beside it."
        )
    if {"format", "fingerprint", "epoch"} <= found.keys():
        yield found
    elif depth:
        for one in found.values():
            if isinstance(one, Mapping):
                yield from _states_in(one, depth=depth - 1)


def _images(args: argparse.Namespace, options: Mapping[str, Any], path: str) -> "Split | Shards":
    """What was read: as the command line says, or as the options of train.py in a checkpoint do."""
    import loader

    given = {name: getattr(args, name) for name in _PLACES if getattr(args, name)}
    index = args.index if args.index is not None else options.get("train_index") or 0
    if not given and options:
        data = options.get("data") or ()
        given = {
            "split": options.get("split"), "rows_fn": options.get("train_rows_fn"),
            "folder": data[0] if data else None, "shards": options.get("train_shards"),
        }  # fmt: skip
        given = {name: value for name, value in given.items() if value}
    if not given:
        raise ImagestrataError(
            f"Wanted --split, --rows-fn, --folder or --shards, or a checkpoint of train.py. Found: none, and {path} "
            "does not name what was read. Give one of them."
        )
    ((kind, place),) = [*given.items()][:1]
    open_: dict[str, Callable[[], Split | Shards]] = {
        "split": lambda: loader.open_split(place, index=index),
        "rows_fn": lambda: loader.open_rows(place),
        "folder": lambda: loader.open_folder(place, **_of_folder(options, place)),
        "shards": lambda: loader.open_shards(place),
    }
    return open_[kind]()


def _of_folder(options: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The options of `open_folder` that train.py used."""
    if not options:
        return {}
    dataset = options.get("dataset")
    or_split = Path(place).resolve().name if dataset else ""
    return {"dataset": dataset, "or_split": or_split, "class_level": options["class_level"]}


def _as_dict(one: Any) -> dict[str, Any]:
    found = {name: getattr(one, name) for name in ("run", "epoch", "step", "rank", "is_exact")}
    if hasattr(one, "positions"):
        found["positions"] = one.positions.tolist()
        found["ids"] = [str(uuid.UUID(bytes=row.tobytes())) for row in one.ids]
    return found


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")


_COMMANDS: dict[str, tuple[Callable[[], Parser], Callable[[argparse.Namespace], int]]] = {
    "replay": (replay_parser, _replay),
    "seen": (seen_parser, _seen),
}
