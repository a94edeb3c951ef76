"""The options of a command line that say what to read; all jobs that read a source have them."""

import argparse
from typing import get_args

from etl.sources.plan import LAYOUTS, ClassLevel, SourcePlan
from schemas.tables import LABEL_TYPES, LabelType

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


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add SOURCE and the options that go with it."""
    parser.add_argument("source", metavar="SOURCE", nargs="?", help="where the images are: see below")
    group = parser.add_argument_group("what to read")
    group.add_argument(
        "--root", metavar="FOLDER", default="", help="the folder in SOURCE that holds everything: outer, outer/inner"
    )
    group.add_argument(
        "--split-subdir",
        action="append",
        metavar="NAME",
        help="a split folder in SOURCE or --root: train, outer/train; repeat the option for each",
    )
    group.add_argument(
        "--split-name", metavar="NAME", default="", help="what to call the split where there is no folder"
    )
    group.add_argument("--layout", choices=LAYOUTS, help="how the source lies there (default: as its name says)")
    group.add_argument(
        "--read", choices=("random", "sequential"), default="random",
        help="how tars are read: sequential is for network file systems on spinning disks (default: random)",
    )  # fmt: skip
    group = parser.add_argument_group("labels")
    group.add_argument("--label-type", choices=LABEL_TYPES, help="class numbers, masks, arrays or none (default: int)")
    group.add_argument("--labels", metavar="FILE", help="a file that tells the classes")
    group.add_argument("--path-column", metavar="NAME", help="its column of paths (default: path)")
    group.add_argument("--label-column", metavar="NAME", help="its column of classes (default: label)")
    group.add_argument("--group-column", metavar="NAME", help="its column of groups that splits keep together")
    group.add_argument("--image-column", metavar="NAME", help="a table's column of pictures (default: image)")
    group.add_argument(
        "--class-names", choices=("name", "number"), help="number: the classes' names are their numbers already"
    )
    group.add_argument(
        "--class-level",
        choices=get_args(ClassLevel),
        help="top: the topmost folders are the classes, although the tree looks as if they were deeper",
    )
    group.add_argument("--masks", metavar="DIR", help="masks of the same relative names: the labels are pictures")
    group.add_argument("--arrays", metavar="DIR", help=".npy files of the same relative names (DIR may be SOURCE)")


def source_plan(args: argparse.Namespace) -> SourcePlan:
    """The plan that these options make. Raises ValueError for options that cannot be."""
    kind: LabelType = args.label_type or ("blob" if args.masks else "multi" if args.arrays else "int")
    return SourcePlan(
        address=args.source,
        layout=args.layout,
        root=args.root,
        splits=tuple(args.split_subdir or ()),
        or_split=args.split_name,
        label_type=kind,
        labels=args.labels,
        path_column=args.path_column,
        label_column=args.label_column,
        group_column=args.group_column,
        image_column=args.image_column,
        class_names=args.class_names,
        class_level=args.class_level,
        masks=args.masks,
        arrays=args.arrays,
        read=args.read,
    )
