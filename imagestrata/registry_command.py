"""The command `imagestrata registry`: what is registered in a keyspace, and what people say about it."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from formats.command_line import Parser, port
from formats.local_node import LocalNode
from schemas import IdentifierError, SchemaError
from schemas.features import ViewName
from schemas.tables import check_keyspace

if TYPE_CHECKING:
    from etl.cassandra.cluster import Cluster
    from etl.cassandra.registry import Entry

_ACTIONS = ("list", "show", "describe", "tag")
_MANUAL = """Show and describe what is registered in a keyspace: feature views and label views.

  imagestrata registry list -k digits
  imagestrata registry show -k digits sharpness
  imagestrata registry describe -k digits redness@v1 --owner vision@example.org --description "mean of the red channel"
  imagestrata registry tag -k digits redness@v1 team=vision use=filters

NAME is the newest version, NAME@v2 the second one. Jobs register what they make. A definition never changes.
Cassandra is the one that `imagestrata up` started, unless --host names another. The user and the password are
IMAGESTRATA_USERNAME and IMAGESTRATA_PASSWORD.

exit codes: 0 done; 1 failed, or nothing of this name; 2 bad arguments"""


def parser() -> Parser:
    """The options of the command."""
    made = Parser("imagestrata registry", manual=_MANUAL)
    add = made.add_argument
    add("action", choices=_ACTIONS, metavar="ACTION", help=", ".join(_ACTIONS))
    add("name", metavar="NAME", nargs="?", help="the name, for show, describe and tag")
    add("tags", metavar="TAG=VALUE", nargs="*", help="for tag; TAG= removes a tag")
    add("-k", "--keyspace", required=True, metavar="NAME", help="the keyspace of the metadata table")
    add("--owner", metavar="TEXT", help="for describe: who is responsible")
    add("--description", metavar="TEXT", help="for describe: what it is")
    add("--host", metavar="HOST,...", help="Cassandra's contact points")
    add("--port", type=port, metavar="N", help="Cassandra's port")
    add("--json", action="store_true", help="print JSON")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = parser()
    args = options.parse_args(argv)
    try:
        check_keyspace(args.keyspace)
        if (args.name is None) != (args.action == "list"):
            options.error(f"wanted NAME with show, describe and tag, not with list. Found: {args.name or 'none'}")
        name = None if args.name is None else ViewName.parse(args.name)
        tags = _tags(args.tags) if args.action == "tag" or args.tags else {}
    except (IdentifierError, ValueError) as error:
        options.error(str(error))
    if args.action == "describe" and args.owner is None and args.description is None:
        options.error("wanted --owner or --description. Found: neither")
    from etl.cassandra import registry  # imported when they are needed, because they import Spark's library
    from etl.cassandra.control import Control
    from etl.errors import EtlError

    try:
        with Control(cluster_of(args), password=os.environ.get("IMAGESTRATA_PASSWORD")) as control:
            found = registry.everything(control, keyspace=args.keyspace)
            if name is None:
                return _print(found, as_json=args.json)
            chosen = [one for one in found if one.name == name.name and name.version in (None, one.version)][:1]
            if not chosen:
                sys.stderr.write(
                    f"error: Wanted {name} in {args.keyspace}.registry. Found: nothing of this name. "
                    f"`imagestrata registry list -k {args.keyspace}` shows the names.\n"
                )
                return 1
            if args.action != "show":
                texts = {"owner": args.owner, "description": args.description, "tags": tags}
                chosen = [registry.describe(control, chosen[0], keyspace=args.keyspace, **texts)]
            return _print(chosen, as_json=args.json, is_full=True)
    except (EtlError, SchemaError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def cluster_of(args: argparse.Namespace) -> "Cluster":
    """The Cassandra of the options, else the one that `imagestrata up` started, else 127.0.0.1."""
    from etl.cassandra.cluster import Cluster

    node = LocalNode.find() if args.host is None else None
    hosts = tuple(args.host.split(",")) if args.host else node.hosts if node else ("127.0.0.1",)
    number = args.port or (node.port if node else 9042)
    return Cluster(hosts=hosts, port=number, username=os.environ.get("IMAGESTRATA_USERNAME") or None)


def _tags(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if not pairs or not all(name and is_equal for name, is_equal, _ in pairs):
        raise ValueError(f"wanted tags as NAME=VALUE. Found: {' '.join(texts) or 'none'}")
    return {name: value for name, _, value in pairs}


def _print(entries: "Sequence[Entry]", *, as_json: bool, is_full: bool = False) -> int:
    if as_json:
        for one in entries:
            sys.stdout.write(json.dumps(_as_dict(one), ensure_ascii=False) + "\n")
    elif is_full:
        for one in entries:
            for name, value in _as_dict(one).items():
                text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
                sys.stdout.write(f"{name:<12} {text}\n")
    else:
        for one in entries:
            sys.stdout.write(
                "\t".join((one.kind, f"{one.name}@v{one.version}", one.owner, one.description)).rstrip() + "\n"
            )
    return 0


def _as_dict(entry: "Entry") -> dict[str, object]:
    return {
        "kind": entry.kind,
        "name": entry.name,
        "version": entry.version,
        "owner": entry.owner,
        "description": entry.description,
        "tags": dict(entry.tags),
        "registered": None if entry.registered is None else f"{entry.registered:%Y-%m-%dT%H:%M:%SZ}",
        "definition": json.loads(entry.document),
    }
