"""Options that several jobs have, and what they mean: sources, images, tables and their columns."""

import argparse
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar, get_args

from etl.deleting.plan import DeletePlan
from etl.ingest.plan import Tolerance
from etl.pictures.plan import TARGETS, Check, MaskFrame, Recode
from etl.sources.plan import LAYOUTS, ClassLevel, SourcePlan
from etl.splits.plan import SplitPlan
from jobs.arguments import PAIR
from schemas import Columns, TableName
from schemas.tables import LABEL_TYPES

SOURCE_HELP = """\
sources:
  DIR                       a tree: DIR/CLASS/**/image, or DIR/SPLIT/CLASS/**/image with --split-subdir SPLIT. Split
                            folders may be nested: --split-subdir outer/train. --root ROOT reads DIR/ROOT
  DIR --labels FILE         images at any depth; FILE has their classes:
                              .csv, .tsv, .parquet: the columns path (relative to DIR or the split folder) and label
                              ImageNet's LOC_val_solution.csv from Kaggle, as it is
                              .txt: one class number per line, in the order of the file names (as in ImageNet's ground
                              truth of the validation set), or a name and a number per line
                            A name without an extension matches the image of that name with any extension
  FILE.tar, .tar.gz, .tgz   the same, in an archive that is read in place. In a tar of tars (ImageNet's training set),
                            each inner tar is a class
  'DIR/x-{0000..0146}.tar'  WebDataset shards (or DIR --layout webdataset), with classes in .cls or .json members
  FILE.parquet              a table with the images in --image-column (or DIR --layout parquet; or NAME --layout table
                            for a table that Spark knows)
  s3://bucket/prefix        any of these on S3. Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL, or
                            spark.imagestrata.s3.endpoint
  hdfs://host/path          any of these on HDFS (needs a Hadoop installation)

The topmost folders of SOURCE, of --root or of a split folder are the classes. If the tree looks different (train and
val without --split-subdir, or one folder around everything), the job stops and lists the options that may help.
"""

CASSANDRA_HELP = """\
The next line names the Cassandra cluster. To choose it, set spark.cassandra.connection.host, .port and .localDC, and
spark.cassandra.auth.username and .password. Without a host, the job uses the Cassandra that `imagestrata up` started,
otherwise 127.0.0.1 port 9042.
"""

P = TypeVar("P")


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add SOURCE and the options that go with it."""
    parser.add_argument("source", metavar="SOURCE", nargs="?", help="where the images are: see below")
    add = parser.add_argument_group("source").add_argument
    add("--root", metavar="FOLDER", default="", help="the folder in SOURCE that holds everything: outer, outer/inner")
    add("--split-subdir", action="append", metavar="NAME",
        help="a split folder in SOURCE or --root: train, outer/train; repeat the option for each")  # fmt: skip
    add("--split-name", metavar="NAME", default="", help="the name of the split if there is no split folder")
    add("--layout", choices=LAYOUTS, help="the layout of the source (default: inferred from its name)")
    add("--read", choices=("random", "sequential"), default="random",
        help="how to read tars; sequential for network file systems on spinning disks (default: random)")  # fmt: skip
    add = parser.add_argument_group("labels").add_argument
    add("--label-type", choices=LABEL_TYPES,
        help="int: class numbers; blob: masks; multi: arrays (default: int, or as --masks or --arrays)")  # fmt: skip
    add("--labels", metavar="FILE", help="the file with the classes")
    add("--path-column", metavar="NAME", help="its column of paths (default: path)")
    add("--label-column", metavar="NAME", help="its column of classes (default: label)")
    add("--group-column", metavar="NAME", help="its column of groups; splits can keep groups together")
    add("--image-column", metavar="NAME", help="the column of images in a table (default: image)")
    add("--class-names", choices=("name", "number"),
        help="number: labels are class numbers; name: never (default: if all are numbers, not folders)")  # fmt: skip
    add("--no-label", metavar="LABEL", help="leave out images with this label, such as -1 in some test splits")
    add("--class-level", choices=get_args(ClassLevel),
        help="top: the topmost folders are the classes, even if the tree looks deeper")  # fmt: skip
    add("--masks", metavar="DIR", help="masks with the same relative names; they become the labels")
    add("--arrays", metavar="DIR", help=".npy files with the same relative names, as labels (DIR may be SOURCE)")


def add_picture_options(group: argparse._ArgumentGroup) -> None:
    """Add ``--img-format`` and what goes with it: used in an ingest, and again when it is verified."""
    add = group.add_argument
    add("--img-format", choices=TARGETS, default="UNCHANGED", help="re-encode (default: UNCHANGED, keep every byte)")
    add("--img-size", type=int, metavar="N", help="resize the shorter side to N pixels; never enlarge")
    add("--crop", action="store_true", help="after --img-size, keep the N x N pixels in the centre")
    add("--quality", type=int, metavar="Q", help="quality of JPEG and WEBP, 1 to 100")
    add("--enlarge", action="store_true", help="let --img-size enlarge small images")
    add("--mask-frame", choices=get_args(MaskFrame),
        help="what masks were drawn on: the pixels as files store them, or upright by their EXIF orientation (default: "
        "as sizes show)")  # fmt: skip


def add_check_options(group: argparse._ArgumentGroup, *, otherwise: str = "only if all are") -> None:
    """Add ``--check`` for the images that are read, and how many may be rejected."""
    add = group.add_argument
    add("--check", choices=get_args(Check), default="header",
        help="how to check images: header and end, all pixels, or not at all (default: header)")  # fmt: skip
    add("--max-errors", metavar="N|P%", help=f"fail if more files are rejected (default: {otherwise})")
    add("--strict", dest="max_errors", action="store_const", const="0", help="the same as --max-errors 0")


def add_table_options(add: Callable[..., Any], *, data: str = "", metadata: str = "of metadata") -> None:
    """Add the two tables; ``data`` and ``metadata`` complete what the help says about them."""
    add("-d", "--data-table", metavar="KS.TABLE", help=f"the table of images{data}")
    add("-m", "--metadata-table", metavar="KS.TABLE", help=f"the table {metadata}")


def add_column_options(add: Callable[..., Any], *, otherwise: str = "") -> None:
    """Add the names of columns, for tables of other software. With ``otherwise``, they have no values by default."""
    for name, what in (("id", "image id"), ("label", "label"), ("data", "image")):
        add(f"--{name}-col", default=None if otherwise else name, metavar="COL",
            help=f"the {what} column (default: {name}{otherwise})")  # fmt: skip


def typed_source_options(args: argparse.Namespace) -> list[str]:
    """The options about a SOURCE that the command line has."""
    parser = argparse.ArgumentParser()
    add_source_options(parser)
    defaults = vars(parser.parse_args([]))
    return [
        f"--{name.replace('_', '-')}" for name, value in defaults.items() if getattr(args, name) not in (None, value)
    ]


def plan_of(kind: type[P], args: argparse.Namespace, **others: Any) -> P:
    """Make a dataclass from the options with the names of its fields, and ``others``. Raises ValueError as it does."""
    same = {one.name: getattr(args, one.name) for one in fields(kind) if hasattr(args, one.name)}  # type: ignore[arg-type]
    return kind(**{**same, **others})


def source_plan(args: argparse.Namespace) -> SourcePlan:
    """The plan of a source. Raises ValueError for bad options."""
    kind = args.label_type or ("blob" if args.masks else "multi" if args.arrays else "int")
    splits = tuple(args.split_subdir or ())
    return plan_of(SourcePlan, args, address=args.source, splits=splits, or_split=args.split_name, label_type=kind)


def recode(args: argparse.Namespace) -> Recode:
    """How images are re-encoded. Raises ValueError for bad options."""
    return plan_of(Recode, args, format=args.img_format, size=args.img_size)


def tolerance(args: argparse.Namespace) -> Tolerance:
    """How many files may be rejected. Raises ValueError if it is not a number."""
    return Tolerance.parse(args.max_errors) if args.max_errors else Tolerance()


def tables_of(args: argparse.Namespace) -> dict[str, Any]:
    """The tables that are named, by option. Raises ValueError for bad names."""
    return {name: TableName.parse(text) for name in PAIR if (text := getattr(args, name)) is not None}


def columns_of(args: argparse.Namespace) -> Columns:
    """The names of the tables' columns. Raises ValueError for bad names."""
    names = {name: getattr(args, f"{name}_col") for name in ("id", "label", "data")}
    return Columns(**{name: value for name, value in names.items() if value is not None})


def check_condition(plan: SplitPlan | DeletePlan) -> None:
    """Raise ValueError for a condition that is not SQL. Starts Spark's JVM if there is a condition."""
    if plan.where:
        from etl.splits.conditions import check_condition

        check_condition(plan.where)
