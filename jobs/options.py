"""Options that several jobs have, and what they mean: sources, pictures, tables and their columns."""

import argparse
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar, get_args

from etl.ingest.plan import Tolerance
from etl.pictures.recode import TARGETS, Recode
from etl.sources.plan import LAYOUTS, ClassLevel, SourcePlan
from jobs.arguments import PAIR
from schemas import Columns, TableName
from schemas.tables import LABEL_TYPES

SOURCE_HELP = """\
sources:
  DIR                       a tree: DIR/CLASS/**/image, or DIR/SPLIT/CLASS/**/image with --split-subdir; DIR/ROOT is
                            DIR with --root ROOT, and split folders may be nested: --split-subdir outer/train
  DIR --labels FILE         images at any depth; FILE tells their classes: .csv, .tsv or .parquet with the columns
                            path (relative to DIR or to the split folder) and label; ImageNet's LOC_val_solution.csv
                            as Kaggle has it; or .txt with one number a line in the order of the file names, as the
                            truth of ImageNet's validation set is shipped, or with a name and a number a line. Names
                            without extensions are matched to images without theirs
  FILE.tar, FILE.tar.gz     the same in an archive, read in place; a tar of tars, as ImageNet's training set is shipped:
                            each inner tar is a class
  'DIR/x-{0000..0146}.tar'  WebDataset shards (or DIR --layout webdataset): classes in .cls or .json members
  FILE.parquet              a table with the pictures' bytes in --image-column (or DIR --layout parquet,
                            or NAME --layout table for a table that Spark knows)
  s3://bucket/prefix        any of these on S3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL, or
                            spark.imagestrata.s3.endpoint; every other address that fsspec knows works in the same way

Class folders are the topmost folders of SOURCE, --root or a split folder. SOURCE is refused if these are probably not
the classes (train and val without --split-subdir, one folder around everything); the message lists the likely options.
"""

P = TypeVar("P")


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add SOURCE and the options that go with it."""
    parser.add_argument("source", metavar="SOURCE", nargs="?", help="where the images are: see below")
    add = parser.add_argument_group("what to read").add_argument
    add("--root", metavar="FOLDER", default="", help="the folder in SOURCE that holds everything: outer, outer/inner")
    add("--split-subdir", action="append", metavar="NAME",
        help="a split folder in SOURCE or --root: train, outer/train; repeat the option for each")  # fmt: skip
    add("--split-name", metavar="NAME", default="", help="what to call the split where there is no folder")
    add("--layout", choices=LAYOUTS, help="how the source lies there (default: as its name says)")
    add("--read", choices=("random", "sequential"), default="random",
        help="how tars are read: sequential is for network file systems on spinning disks (default: random)"
    )  # fmt: skip
    add = parser.add_argument_group("labels").add_argument
    add("--label-type", choices=LABEL_TYPES, help="class numbers, masks, arrays or none (default: int)")
    add("--labels", metavar="FILE", help="a file that tells the classes")
    add("--path-column", metavar="NAME", help="its column of paths (default: path)")
    add("--label-column", metavar="NAME", help="its column of classes (default: label)")
    add("--group-column", metavar="NAME", help="its column of groups that splits keep together")
    add("--image-column", metavar="NAME", help="a table's column of pictures (default: image)")
    add("--class-names", choices=("name", "number"), help="number: the classes' names are their numbers already")
    add("--class-level", choices=get_args(ClassLevel),
        help="top: the topmost folders are the classes, although the tree looks as if they were deeper")  # fmt: skip
    add("--masks", metavar="DIR", help="masks of the same relative names: the labels are pictures")
    add("--arrays", metavar="DIR", help=".npy files of the same relative names (DIR may be SOURCE)")


def add_picture_options(group: argparse._ArgumentGroup) -> None:
    """Add ``--img-format`` and what goes with it: given to an ingest, and again to verify it."""
    add = group.add_argument
    add("--img-format", choices=TARGETS, default="UNCHANGED", help="re-encode (default: UNCHANGED, every byte is kept)")
    add("--img-size", type=int, metavar="N", help="make the shorter side N pixels, never larger than it is")
    add("--crop", action="store_true", help="and keep the N x N pixels of the centre")
    add("--quality", type=int, metavar="Q", help="of JPEG and WEBP, 1 to 100")
    add("--enlarge", action="store_true", help="let --img-size make small pictures larger")


def add_column_options(add: Callable[..., Any], *, metavar: str) -> None:
    """Add the names of the columns that tables of others may call otherwise."""
    for name, what in (("id", "the image's id"), ("label", "the label"), ("data", "the picture")):
        add(f"--{name}-col", default=name, metavar=metavar, help=f"the column of {what} (default: {name})")


def typed_source_options(args: argparse.Namespace) -> list[str]:
    """The options that say how to read a SOURCE, as far as they were typed."""
    parser = argparse.ArgumentParser()
    add_source_options(parser)
    defaults = vars(parser.parse_args([]))
    return [
        f"--{name.replace('_', '-')}" for name, value in defaults.items() if getattr(args, name) not in (None, value)
    ]


def plan_of(kind: type[P], args: argparse.Namespace, **others: Any) -> P:
    """A dataclass whose fields are the options of the same names, and ``others``. Raises ValueError as it does."""
    same = {one.name: getattr(args, one.name) for one in fields(kind) if hasattr(args, one.name)}  # type: ignore[arg-type]
    return kind(**{**same, **others})


def source_plan(args: argparse.Namespace) -> SourcePlan:
    """The plan that the options of a source make. Raises ValueError for options that cannot be."""
    kind = args.label_type or ("blob" if args.masks else "multi" if args.arrays else "int")
    splits = tuple(args.split_subdir or ())
    return plan_of(SourcePlan, args, address=args.source, splits=splits, or_split=args.split_name, label_type=kind)


def recode(args: argparse.Namespace) -> Recode:
    """What is made of the pictures. Raises ValueError for options that cannot be."""
    return plan_of(Recode, args, format=args.img_format, size=args.img_size)


def tolerance(args: argparse.Namespace) -> Tolerance:
    """How many files may be rejected. Raises ValueError for what is no number."""
    return Tolerance.parse(args.max_errors) if args.max_errors else Tolerance()


def tables_of(args: argparse.Namespace) -> dict[str, Any]:
    """Those tables of the pair that have been named. Raises ValueError for names that cannot be."""
    return {name: TableName.parse(text) for name in PAIR if (text := getattr(args, name)) is not None}


def columns_of(args: argparse.Namespace) -> Columns:
    """The names of the tables' columns. Raises ValueError for names that cannot be."""
    names = {name: getattr(args, f"{name}_col") for name in ("id", "label", "data")}
    return Columns(**{name: value for name, value in names.items() if value is not None})
