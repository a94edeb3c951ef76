"""The options of a command line that say what is made of the pictures: given to an ingest, and again to verify it."""

import argparse

from etl.pictures.recode import TARGETS, Recode


def add_picture_options(group: argparse._ArgumentGroup) -> None:
    """Add ``--img-format`` and what goes with it."""
    add = group.add_argument
    add("--img-format", choices=TARGETS, default="UNCHANGED", help="re-encode (default: UNCHANGED, every byte is kept)")
    add("--img-size", type=int, metavar="N", help="make the shorter side N pixels, never larger than it is")
    add("--crop", action="store_true", help="and keep the N x N pixels of the centre")
    add("--quality", type=int, metavar="Q", help="of JPEG and WEBP, 1 to 100")
    add("--enlarge", action="store_true", help="let --img-size make small pictures larger")


def recode(args: argparse.Namespace) -> Recode:
    """What these options say. Raises ValueError for options that cannot be."""
    return Recode(
        format=args.img_format, size=args.img_size, crop=args.crop, quality=args.quality, enlarge=args.enlarge
    )
