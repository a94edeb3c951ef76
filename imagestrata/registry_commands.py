"""The commands of a keyspace: `imagestrata registry`, `lineage`, `similar` and `migrate`."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from formats.command_line import Parser, command, port
from schemas import Columns, IdentifierError, TableName
from schemas.features import ViewName
from schemas.tables import check_keyspace

if TYPE_CHECKING:
    from etl.cassandra.cluster import Cluster
    from imagestrata.registry import Change, Registry

_ACTIONS = ("list", "show", "describe", "tag", "add", "apply", "delete")
_CONNECTION = """Cassandra is the one that `imagestrata up` started, unless --host names another. User, password and
certificates are those of the variables IMAGESTRATA_USERNAME, IMAGESTRATA_PASSWORD or IMAGESTRATA_PASSWORD_FILE,
IMAGESTRATA_CA, IMAGESTRATA_CERTIFICATE, IMAGESTRATA_KEY and IMAGESTRATA_BUNDLE."""
_MANUAL = f"""Show and change what is registered in a keyspace.

  imagestrata registry list -k digits
  imagestrata registry list runs -k digits
  imagestrata registry show sharpness -k digits
  imagestrata registry describe redness@v1 -k digits --owner vision@example.org --description "mean of the red channel"
  imagestrata registry tag split splits/digits pinned=true -k digits
  imagestrata registry add splits/digits
  imagestrata registry apply definitions/ -k digits
  imagestrata registry delete feature-view redness@v1 -k digits --drop-values

list      datasets, their tables, classes and runs; and feature views, label views, feature services, feature exports,
          splits, shard sets and models. With a KIND, only these
show      one of them in full
describe  set the owner or the description
tag       set tags; TAG= removes one
add       register a split, a shard set, exported features or a checkpoint. Jobs register what they make; this is for
          older files
apply     make the registry as the definitions in a TOML file, or in all files *.toml of a folder, say
delete    remove something from the registry that nothing uses. Files and tables of splits, shards and models stay

NAME is the newest version, NAME@v2 the second one. Put KIND before NAME if several kinds have the name. A definition
never changes: another definition is another version. apply and delete show what they would do, and ask.

{_CONNECTION}

exit codes: 0 done; 1 failed, or nothing of this name; 2 bad arguments"""
_LINEAGE = f"""Show where something comes from, and what was made from it.

  imagestrata lineage splits/digits
  imagestrata lineage checkpoint.pt --picture lineage.svg
  imagestrata lineage checkpoint.pt --since-then
  imagestrata lineage train/2/0002.png -m digits.metadata
  imagestrata lineage 7c743c2e-685c-55f2-9f8b-e10df2a8a6a6 -m digits.metadata

For an image: its path, source, SHA-256 and run; all registered splits, shard sets and models that hold it; and, if it
was changed or deleted, when and why. For a checkpoint: its splits, by fingerprint; their tables; and the runs that
wrote them. What can no longer be read is listed as not known.

--since-then says whether a model was trained before labels were corrected: how many images of its splits have other
labels now, were deleted or were replaced since, and the first five of each. It starts Spark, as jobs do. The exit code
is 0 whatever it finds.

{_CONNECTION}

exit codes: 0 done; 1 failed, or nothing is known of it; 2 bad arguments"""
_SIMILAR = f"""Find the nearest neighbors of an image: the images whose vectors have the largest cosine similarity.

  imagestrata similar 0f8a4d0e-... -m digits.metadata --view embedding
  imagestrata similar 0f8a4d0e-... -m digits.metadata --view embedding@v1 --count 50 --exact --json

`spark-submit jobs/featurize.py --features embedding --vector-index` computes the vectors and their index. A search in
the index is approximate: it may miss a neighbor, but similarities are exact. --exact reads all vectors instead. Images
that were removed, or whose bytes have changed since then, are left out.

{_CONNECTION}

exit codes: 0 done; 1 failed; 2 bad arguments"""

_MIGRATE = f"""Bring tables that an earlier version of imagestrata wrote into the current form.

  imagestrata migrate -m digits.metadata --dry-run
  imagestrata migrate -m digits.metadata
  imagestrata migrate -m digits.metadata -d digits.data       # tables of version 0.1 have no record of each other
  imagestrata migrate -k digits --checksums

It adds tables, columns and values that are missing, and changes and removes nothing. Other jobs may run meanwhile, but
none of an earlier version. If it is interrupted, run it again: it goes on. Tables that have the current form stay as
they are, and tables of other tools are refused.

Images without a checksum are reported. --checksums reads them all once, compares their SHA-256 and stores the checksum.

It starts Spark, as jobs do. {_CONNECTION}

exit codes: 0 done, or nothing to do; 1 failed; 2 bad arguments"""


def parser() -> Parser:
    """The options of `imagestrata registry`."""
    made = Parser("imagestrata registry", manual=_MANUAL)
    add = made.add_argument
    add("action", choices=_ACTIONS, metavar="ACTION", help=", ".join(_ACTIONS))
    add("words", metavar="NAME", nargs="*", help="[KIND] NAME [TAG=VALUE ...]; for add and apply, a path")
    add("-k", "--keyspace", metavar="NAME", help="the keyspace of the metadata table; add finds it in most files")
    add("--owner", metavar="TEXT", help="for describe: who is responsible")
    add("--description", metavar="TEXT", help="for describe: what it is")
    add("--plan", action="store_true", help="for apply and delete: only show what would be done")
    add("-y", "--yes", action="store_true", help="for apply and delete: do not ask")
    add("--prune", action="store_true", help="for apply: remove feature views, feature services and descriptions of "
        "datasets that the files do not have")  # fmt: skip
    add("--drop-values", action="store_true", help="for apply and delete: drop the tables of a removed view's values")
    _add_connection(made)
    return made


def lineage_parser() -> Parser:
    """The options of `imagestrata lineage`."""
    made = Parser("imagestrata lineage", manual=_LINEAGE)
    add = made.add_argument
    add("target", metavar="TARGET", help="an image's id or path, or a split, a folder of shards or a checkpoint")
    add("-m", "--metadata-table", metavar="KS.TABLE", help="the metadata table; required for an image")
    add("-k", "--keyspace", metavar="NAME", help="the keyspace, if neither -m nor the files name it")
    add("--id-col", default="id", metavar="COL", help="the column of ids (default: id)")
    add("--picture", metavar="FILE", help="write a picture, too: an SVG file")
    add("--since-then", action="store_true", help="for a checkpoint: count its images whose labels were corrected, "
        "that were deleted, or whose bytes were replaced since its splits were made")  # fmt: skip
    _add_connection(made)
    return made


def similar_parser() -> Parser:
    """The options of `imagestrata similar`."""
    made = Parser("imagestrata similar", manual=_SIMILAR)
    add = made.add_argument
    add("id", metavar="ID", help="the id of the image")
    add("-m", "--metadata-table", required=True, metavar="KS.TABLE", help="the table of metadata")
    add("--view", required=True, metavar="NAME", help="the feature view: NAME (the newest version) or NAME@v2")
    add("--count", type=int, default=10, metavar="N", help="the number of neighbors, up to 500 (default: 10)")
    add("--exact", action="store_true", help="compare with all vectors instead of searching the index")
    add("--id-col", default=Columns().id, metavar="NAME", help="the id column of the metadata table (default: id)")
    _add_connection(made)
    return made


def migrate_parser() -> Parser:
    """The options of `imagestrata migrate`."""
    made = Parser("imagestrata migrate", manual=_MIGRATE)
    add = made.add_argument
    add("-m", "--metadata-table", metavar="KS.TABLE", help="the metadata table")
    add("-k", "--keyspace", metavar="NAME", help="all metadata tables of a keyspace, instead of -m")
    add("-d", "--data-table", metavar="KS.TABLE", help="the table of images (default: the recorded one)")
    add("--dataset", metavar="NAME", help="the dataset of a table without a record (default: its keyspace)")
    for name in ("id", "label", "data"):
        add(f"--{name}-col", default=name, metavar="COL", help=f"the column of the {name} (default: {name})")
    add("--checksums", action="store_true", help="read all images without a checksum, and store it")
    add("--dry-run", action="store_true", help="only show what would be done")
    _add_connection(made)
    return made


def _add_connection(made: Parser) -> None:
    made.add_argument("--host", metavar="HOST,...", help="Cassandra's contact points")
    made.add_argument("--port", type=port, metavar="N", help="Cassandra's port")
    made.add_argument("--json", action="store_true", help="print JSON")


@command("error")
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first word names; returns the exit code."""
    name, *rest = list(sys.argv[1:] if argv is None else argv)
    make, check, act = _COMMANDS[name]
    options = make()
    args = options.parse_args(rest)
    try:
        check(args)
    except (IdentifierError, ValueError) as error:
        options.error(str(error))
    return act(args)


def _check(args: argparse.Namespace) -> None:
    """Raise ValueError for a command line that is wrong; take its words apart."""
    from imagestrata.registry import ALL_KINDS, kind_of

    action, words = args.action, list(args.words)
    tags = [word for word in words[1:] if "=" in word] if action == "tag" else []
    names = [word for word in words if word not in tags]
    args.kind, args.name = None, names[0] if names else None
    if action not in ("add", "apply", "list") and len(names) == 2 and (kind := kind_of(names[0])):
        args.kind, args.name = kind, names[1]
    elif action == "list" and names:
        args.kind = kind_of(names[0]) or kind_of(names[0].removesuffix("s"))
        if args.kind is None or len(names) > 1:
            raise ValueError(f"wanted a kind: {', '.join(ALL_KINDS)}. Found: {' '.join(names)}")
    elif len(names) != (0 if action == "list" else 1):
        wanted = {"list": "no NAME with list", "add": "a path with add", "apply": "a path with apply"}
        raise ValueError(f"wanted {wanted.get(action, f'NAME with {action}')}. Found: {' '.join(names) or 'none'}")
    args.tags = _tags(tags) if action == "tag" else {}
    if args.keyspace is not None:
        check_keyspace(args.keyspace)
    elif action != "add":
        raise ValueError("wanted -k KEYSPACE. Found: none")
    if action == "describe" and args.owner is None and args.description is None:
        raise ValueError("wanted --owner or --description. Found: neither")
    of = {"owner": ("describe",), "description": ("describe",), "plan": ("apply", "delete"), "yes": ("apply", "delete"),
          "prune": ("apply",), "drop_values": ("apply", "delete")}  # fmt: skip
    for name, actions in of.items():
        if getattr(args, name) not in (None, False) and action not in actions:
            raise ValueError(f"wanted --{name.replace('_', '-')} with {' or '.join(actions)}. Found: {action}")


def _check_lineage(args: argparse.Namespace) -> None:
    from imagestrata.registry import image_id

    args.metadata = TableName.parse(args.metadata_table) if args.metadata_table else None
    if image_id(args.target) is not None and args.metadata is None:
        raise ValueError("wanted -m KS.TABLE, the metadata table of the image. Found: none")
    if args.since_then and (args.picture is not None or image_id(args.target) is not None):
        what = "an image" if args.picture is None else "--picture"
        raise ValueError(f"wanted a checkpoint alone with --since-then. Found: {what}")
    if args.picture is not None and not args.picture.lower().endswith(".svg"):
        raise ValueError(f"wanted a picture in a file *.svg. Found: {args.picture}")
    if args.keyspace is not None:
        check_keyspace(args.keyspace)


def _check_similar(args: argparse.Namespace) -> None:
    from imagestrata.registry import image_id

    args.image = image_id(args.id)
    if args.image is None:
        raise ValueError(f"wanted the id of an image as a UUID. Found: {args.id}")
    args.metadata, args.view = TableName.parse(args.metadata_table), ViewName.parse(args.view)
    args.columns = Columns(id=args.id_col)
    if not 1 <= args.count <= 500:
        raise ValueError(f"wanted 1 to 500 for --count. Found: {args.count}")


def _check_migrate(args: argparse.Namespace) -> None:
    from etl.migration.plan import MigrationPlan

    metadata, data = (TableName.parse(name) if name else None for name in (args.metadata_table, args.data_table))
    args.plan = MigrationPlan(
        metadata_table=metadata,
        keyspace=None if args.keyspace is None else check_keyspace(args.keyspace),
        data_table=data,
        dataset=args.dataset,
        columns=Columns(args.id_col, args.label_col, args.data_col),
        checksums=args.checksums,
        dry_run=args.dry_run,
    )


def _tags(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not pairs or not all(name for name, _, _ in pairs):
        raise ValueError(f"wanted tags as NAME=VALUE. Found: {' '.join(texts) or 'none'}")
    return {name: value for name, _, value in pairs}


def _connection(args: argparse.Namespace) -> dict[str, Any]:
    """Where Cassandra is, as `Registry` takes it."""
    return {
        "hosts": args.host.split(",") if args.host else None,
        "port": args.port,
    }


def _opened(args: argparse.Namespace, keyspace: str | None = None) -> "Registry":
    from imagestrata.registry import Registry

    return Registry(keyspace or args.keyspace, **_connection(args))


def _list(args: argparse.Namespace) -> int:
    from etl.errors import TableError

    with _opened(args) as registry:
        items = registry.items()
        if not items:
            raise TableError(f"Wanted a keyspace with datasets or a registry. Found: nothing in {args.keyspace}.")
        for item in registry.items(args.kind) if args.kind else items:
            line = "\t".join((item.kind, item.title, item.owner, item.summary)).rstrip()
            _write(json.dumps(item.as_dict(), ensure_ascii=False) if args.json else line)
    return 0


def _show(args: argparse.Namespace) -> int:
    """Show one thing, for describe and tag after it is changed."""
    with _opened(args) as registry:
        item = registry.find(args.name, args.kind)
        if args.action != "show":
            item = registry.describe(item, owner=args.owner, description=args.description, tags=args.tags)
    found = item.as_dict()
    if args.json:
        _write(json.dumps(found, ensure_ascii=False))
        return 0
    for name, value in found.items():
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else "" if value is None else value
        _write(f"{name:<12} {text}".rstrip())
    return 0


def _add(args: argparse.Namespace) -> int:
    from etl.errors import TableError
    from imagestrata.registry import product_at

    product = product_at(args.name)
    if product is None:
        raise TableError(
            "Wanted a split, a folder of shards or of features, or a checkpoint with its record. "
            f"Found: none at {args.name}."
        )
    if (keyspace := args.keyspace or product.keyspace) is None:
        raise TableError(f"Wanted -k KEYSPACE, because the files of {args.name} name no table. Found: none.")
    with _opened(args, keyspace) as registry:
        entry = registry.add(product)
    _write(json.dumps({"kind": entry.kind, "name": entry.name, "version": entry.version, "keyspace": keyspace})
           if args.json else f"{entry.kind} {entry.title} is registered in {keyspace}.registry")  # fmt: skip
    return 0


def _change(args: argparse.Namespace) -> int:
    with _opened(args) as registry:
        if args.action == "apply":
            changes = registry.plan(args.name, prune=args.prune, drop_values=args.drop_values)
        else:
            changes = registry.plan_removal(registry.find(args.name, args.kind), drop_values=args.drop_values)
        return _carry_out(registry, changes, args)


def _carry_out(registry: "Registry", changes: "Sequence[Change]", args: argparse.Namespace) -> int:
    """Show changes, ask, and make them."""
    from etl.errors import ConflictError

    pending = [change for change in changes if change.action != "keep"]
    for change in changes:
        _write(json.dumps(_as_dict(change), ensure_ascii=False) if args.json else str(change))
    if args.plan or not pending:
        if not pending and not args.json:
            _write("nothing to do")
        return 0
    if not args.yes:
        if not sys.stdin.isatty():
            raise ConflictError("Wanted --yes, or a terminal to ask. Found: neither. Nothing was changed.")
        if input("Make these changes? [y/N] ").strip().lower() not in ("y", "yes"):
            _write("nothing was changed")
            return 1
    registry.apply(changes)
    if not args.json:
        _write("done")
    return 0


def _as_dict(change: "Change") -> dict[str, Any]:
    entry = change.entry
    return {"action": change.action, "kind": entry.kind, "name": entry.name, "version": entry.version,
            "changes": list(change.lines), "drops": [str(table) for table in change.tables]}  # fmt: skip


def _lineage(args: argparse.Namespace) -> int:
    from etl.errors import TableError
    from imagestrata.registry import as_svg, as_text, image_id, product_at

    product = None if image_id(args.target) is not None else product_at(args.target)
    of_files = None if product is None else product.keyspace
    keyspace = args.keyspace or (args.metadata.keyspace if args.metadata else of_files)
    if keyspace is None:
        raise TableError(f"Wanted -k KEYSPACE, because no files at {args.target} name a table. Found: none.")
    if args.since_then:
        return _since_then(args, keyspace)
    with _opened(args, keyspace) as registry:
        found = registry.lineage(args.target, metadata=args.metadata, id_column=args.id_col)
    if args.picture is not None:
        Path(args.picture).write_text(as_svg(found), encoding="utf-8")
    _write(json.dumps(found.as_dict(), ensure_ascii=False) if args.json else as_text(found))
    return 0


def _since_then(args: argparse.Namespace, keyspace: str) -> int:
    """Print what has changed of a model's images. Compares whole splits with the table, so it starts Spark."""
    from etl.verify.model_changes import ModelImages, run
    from jobs.command import execute

    with _opened(args, keyspace) as registry:
        images = ModelImages(*registry.images_of_model(args.target))
        cluster = registry.cluster
    with _settings(args, cluster) as settings:
        execute("lineage", run, images, as_json=args.json, has_events=False, settings=settings)
    return 0


@contextmanager
def _settings(args: argparse.Namespace, cluster: "Cluster") -> Iterator[dict[str, str]]:
    """The settings of a Spark session that reads the Cassandra of a command, with the access of the environment."""
    from etl.tls import BUNDLE
    from imagestrata.key_stores import key_stores
    from jobs.command import HOST, PORT
    from loader import Access
    from loader.errors import require

    access = Access.from_environment()
    is_named = args.host is not None or args.port is not None
    user = {"spark.cassandra.auth.username": access.username, "spark.cassandra.auth.password": access.password}
    # Otherwise the job finds the Cassandra of `imagestrata up`, with the access that it requires.
    where = {HOST: ",".join(cluster.hosts), PORT: str(cluster.port)} if is_named else {}
    if cluster.bundle is not None:
        where = {BUNDLE: cluster.bundle}
    settings = {**where, **{name: value for name, value in user.items() if value}}
    with TemporaryDirectory() as folder:  # only its owner can read it
        if access.ca is not None:
            require("cryptography", extra="secure", purpose="TLS of Spark from PEM files")
            paths = (access.ca, access.certificate, access.key)
            ca, certificate, key = (None if path is None else Path(path).read_bytes() for path in paths)
            assert ca is not None
            settings |= key_stores(Path(folder), ca, certificate=certificate, key=key, passphrase=access.passphrase)
        yield settings


def _migrate(args: argparse.Namespace) -> int:
    from etl.migration.migration import run
    from imagestrata.registry import control_at
    from jobs.command import execute
    from loader import Access

    with control_at(**_connection(args), access=Access.from_environment()) as control:  # before Spark starts
        cluster = control.cluster
    with _settings(args, cluster) as settings:
        execute("migrate", run, args.plan, as_json=args.json, has_events=False, settings=settings)
    return 0


def _similar(args: argparse.Namespace) -> int:
    from etl.features.vectors.neighbors import find_neighbors
    from imagestrata.registry import control_at
    from loader import Access

    with control_at(**_connection(args), access=Access.from_environment()) as control:
        found = find_neighbors(
            control, args.image, metadata=args.metadata, view=args.view, count=args.count, exact=args.exact,
            columns=args.columns,
        )  # fmt: skip
    if args.json:
        _write(json.dumps(found.to_dict(), ensure_ascii=False))
        return 0
    for one in found.neighbors:
        _write(f"{one.similarity:.4f}  {one.id}  {one.path or ''}")
    how = "all vectors were compared" if found.is_exact else "found by the vector index, which may miss some"
    _write(f"{len(found.neighbors):,} neighbors by {found.view}: {how}")
    return 0


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")


_ACT: dict[str, Callable[[argparse.Namespace], int]] = {
    "list": _list,
    "show": _show,
    "describe": _show,
    "tag": _show,
    "add": _add,
    "apply": _change,
    "delete": _change,
}
# Of each command: its options, the check of their values, and what it does.
_COMMANDS: dict[str, tuple[Callable[[], Parser], Callable[[argparse.Namespace], None], Callable[..., int]]] = {
    "registry": (parser, _check, lambda args: _ACT[args.action](args)),
    "lineage": (lineage_parser, _check_lineage, _lineage),
    "similar": (similar_parser, _check_similar, _similar),
    "migrate": (migrate_parser, _check_migrate, _migrate),
}
