"""The command `imagestrata similar`: the images that look most like one, by a feature view of vectors."""

import json
import logging
import os
import sys
import uuid
from collections.abc import Sequence

from formats.command_line import Parser, command, port
from schemas import Columns, IdentifierError, TableName
from schemas.features import ViewName

_MANUAL = """Find the nearest neighbors of an image: the images whose vectors have the largest cosine similarity.

  imagestrata similar 0f8a4d0e-... -m digits.metadata --view embedding
  imagestrata similar 0f8a4d0e-... -m digits.metadata --view embedding@v1 --count 50 --exact --json

`spark-submit jobs/featurize.py --features embedding --vector-index` computes the vectors and their index. A search in
the index is approximate: it may miss a neighbor, but similarities are exact. --exact reads all vectors instead. Images
that were removed, or whose bytes have changed since then, are left out.

Cassandra is the one that `imagestrata up` started, unless --host names another. The user and the password are
IMAGESTRATA_USERNAME and IMAGESTRATA_PASSWORD.

exit codes: 0 done; 1 failed; 2 bad arguments"""


def parser() -> Parser:
    """The options of the command."""
    made = Parser("imagestrata similar", manual=_MANUAL)
    add = made.add_argument
    add("id", metavar="ID", help="the id of the image")
    add("-m", "--metadata-table", required=True, metavar="KS.TABLE", help="the table of metadata")
    add("--view", required=True, metavar="NAME", help="the feature view: NAME (the newest version) or NAME@v2")
    add("--count", type=int, default=10, metavar="N", help="the number of neighbors, up to 500 (default: 10)")
    add("--exact", action="store_true", help="compare with all vectors instead of searching the index")
    add("--id-col", default=Columns().id, metavar="NAME", help="the id column of the metadata table (default: id)")
    add("--host", metavar="HOST,...", help="Cassandra's contact points")
    add("--port", type=port, metavar="N", help="Cassandra's port")
    add("--json", action="store_true", help="print JSON")
    return made


@command("error")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = parser()
    args = options.parse_args(argv)
    try:
        image, metadata, view = uuid.UUID(args.id), TableName.parse(args.metadata_table), ViewName.parse(args.view)
        columns = Columns(id=args.id_col)
    except (IdentifierError, ValueError) as error:
        options.error(f"wanted the id of an image as a UUID. Found: {args.id}" if "UUID" in str(error) else str(error))
    if not 1 <= args.count <= 500:
        options.error(f"wanted 1 to 500 for --count. Found: {args.count}")
    from etl.cassandra.control import Control  # imported when they are needed, because they import Spark's library
    from etl.features.vectors.neighbors import find_neighbors
    from imagestrata.registry import cluster_at

    logging.getLogger("cassandra.protocol").setLevel(logging.ERROR)  # the server warns that a search reads one replica
    cluster = cluster_at(
        args.host.split(",") if args.host else None,
        args.port,
        username=os.environ.get("IMAGESTRATA_USERNAME") or None,
    )
    with Control(cluster, password=os.environ.get("IMAGESTRATA_PASSWORD")) as control:
        found = find_neighbors(
            control, image, metadata=metadata, view=view, count=args.count, exact=args.exact, columns=columns
        )
    if args.json:
        sys.stdout.write(json.dumps(found.to_dict(), ensure_ascii=False) + "\n")
        return 0
    for one in found.neighbors:
        sys.stdout.write(f"{one.similarity:.4f}  {one.id}  {one.path or ''}\n")
    how = "all vectors were compared" if found.is_exact else "found by the vector index, which may miss some"
    sys.stdout.write(f"{len(found.neighbors):,} neighbors by {found.view}: {how}\n")
    return 0
