"""Serve datasets over REST, and manage access to them.

  imagestrata serve --root /srv/datasets                  for this machine only: http://127.0.0.1:8080
  imagestrata token create --root /srv/datasets --name ci --scope write
  imagestrata serve --root /srv/datasets --host 0.0.0.0   for other machines, with tokens

  curl -X POST -H "Content-Type: application/json" -d '{"name": "my_dataset"}' http://localhost:8080/datasets
  curl -X PUT -H "Content-Type: application/octet-stream" --data-binary @my_file.csv http://localhost:8080/datasets/my_dataset
  tar c -C my_folder . | curl -X PUT -H "Content-Type: application/x-tar" --data-binary @- http://localhost:8080/datasets/my_dataset
  curl -OJL http://localhost:8080/datasets/my_dataset

  imagestrata list                              list the datasets at --url or $IMAGESTRATA_URL
  imagestrata push my_folder --name my_dataset  publish a folder; an interrupted push or pull resumes
  imagestrata pull my_dataset /datasets         download to /datasets/my_dataset, replaced in one step
  imagestrata restore my_dataset 3              make version 3 the newest again
  imagestrata run job.yaml                      run a training job that reads a dataset

Every upload creates a version. Versions never change and become visible when they are complete. On a loopback address
no token is needed until you create the first one. On other addresses a token is always needed, unless you give
--insecure. While no token is needed, the Host header of a request must name this server or a --host-name. Use one
server for each folder or bucket prefix.

exit codes:
  0  done, or the server was stopped
  1  failed; one line gives the reason
  2  bad arguments
"""

import argparse
import hashlib
import ipaddress
import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from formats import sizes
from formats.command_line import Parser, command, size
from formats.errors import AddressError
from formats.stores.addresses import check_store
from formats.stores.s3 import is_s3
from formats.stores.storage import Storage
from formats.user_cache import our_cache
from imagestrata.service.client_commands import list_datasets, pull, push, restore
from imagestrata.service.server.hosts import Hosts, authority
from imagestrata.service.tokens import SCOPES, Tokens

if TYPE_CHECKING:
    from imagestrata.service.stores.store import Store


@command("error")
def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    name, *rest = sys.argv[1:] if argv is None else argv
    return _COMMANDS[name](rest)


def serve(argv: Sequence[str]) -> int:
    """Serve until the process is stopped."""
    parser = Parser("imagestrata serve", manual=f"{__doc__}\n{sizes.HELP}.\n")
    add = parser.add_argument
    add("--root", required=True, type=_root, metavar="DIR", help="folder of the datasets, or s3://bucket/prefix")
    add("--spool", metavar="DIR", help="folder for uploads on their way to a bucket (default: below ~/.cache)")
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    add("--port", type=int, default=8080, help="port to listen on; 0 picks a free one (default: 8080)")
    add("--host-name", action="append", default=[], type=_host_name, metavar="NAME", help="another name of this "
        "server, for example behind a proxy; other hosts are refused (repeatable)")  # fmt: skip
    add("--proxy", action="append", default=[], type=_proxy, metavar="ADDRESS", help="address or network of a proxy; "
        "only its X-Forwarded-For and -Proto are trusted (repeatable)")  # fmt: skip
    add("--insecure", action="store_true", help="serve without tokens, also to other machines")
    add("--max-upload", type=size, metavar="SIZE", help="the largest upload, such as 500M or 2T (default: no limit)")
    add("--quota", type=size, metavar="SIZE", help="limit for all versions together (default: no limit)")
    args = parser.parse_args(argv)
    if not 0 <= args.port <= 65535:
        parser.error(f"wanted a port from 0 to 65535. Found: {args.port}")
    is_loopback = _is_loopback(args.host)
    from imagestrata.service.access import Access
    from imagestrata.service.server.app import make_app
    from imagestrata.service.server.server import run
    from imagestrata.service.uploads.uploads import Uploads

    tokens = Tokens(Storage(args.root))
    known = tokens.all()  # a file that cannot be read is found before the server starts
    if not is_loopback and not args.insecure and not known:
        parser.error(
            f"wanted a token, because other machines can reach {args.host}. Found: none in {args.root}. Create one: "
            f"imagestrata token create --root {args.root} --name NAME --scope write. Or give --insecure."
        )
    with _private(), closing(_store(args.root, args.spool)) as store:
        access = Access(tokens, is_open=is_loopback, is_insecure=args.insecure)
        names = ["localhost", "127.0.0.1", "[::1]", args.host, socket.gethostname(), socket.getfqdn()]
        hosts = Hosts(names[:4] if is_loopback else names, given=args.host_name, is_local=is_loopback)
        uploads = Uploads(store, most=args.max_upload, quota=args.quota)
        app = make_app(store, access=access, hosts=hosts, uploads=uploads)
        return run(app, host=args.host, port=args.port, proxies=args.proxy, tell=lambda line: print(line, flush=True))


def token(argv: Sequence[str]) -> int:
    """Create, list and revoke tokens."""
    manual = "Create, list and revoke the tokens of a service. Only their hashes are stored."
    parser = Parser("imagestrata token", manual=manual)
    add = parser.add_argument
    add("do", choices=("create", "list", "revoke"))
    add("--root", required=True, type=_root, metavar="DIR",
        help="folder or bucket prefix of the service; 'create' makes a folder that does not exist")  # fmt: skip
    add("--name", help="name of the token")
    add("--scope", choices=SCOPES, default="read", help="what the token permits; write includes read (default: read)")
    add("--token-file", type=Path, metavar="FILE", help="with create: read the token from this file instead of making "
        "one; a second run changes nothing")  # fmt: skip
    args = parser.parse_args(argv)
    if args.token_file and args.do != "create":
        parser.error(f"wanted --token-file with 'create'. Found: it with {args.do!r}")
    if args.do != "list" and not re.fullmatch(r"[A-Za-z0-9._@-]{1,64}", args.name or ""):
        parser.error(f"wanted --name, 1 to 64 letters, digits and '.', '_', '@', '-'. Found: {args.name!r}")
    if args.do != "create" and not is_s3(args.root) and not Path(args.root).is_dir():
        parser.error(f"wanted --root, the folder of a service. Found: no folder {args.root}")
    tokens = Tokens(Storage(args.root))
    with _private():
        if args.do == "create" and args.token_file:
            text = args.token_file.read_text(encoding="utf-8", errors="surrogateescape").strip()
            tokens.create(args.name, args.scope, text=text)
        elif args.do == "create":
            print(tokens.create(args.name, args.scope))
            print("Store this token now: it cannot be shown again. The service stores only its hash.", file=sys.stderr)
        elif args.do == "revoke":
            tokens.revoke(args.name)
        else:
            for one in tokens.all():
                print(f"{one.name}\t{one.scope}\t{one.created}")
    return 0


_COMMANDS = {
    "serve": serve,
    "token": token,
    "list": list_datasets,
    "push": push,
    "pull": pull,
    "restore": restore,
}


def _store(root: str, spool: str | None) -> "Store":
    if not is_s3(root):
        from imagestrata.service.stores.folders import FolderStore

        return FolderStore(root)
    from imagestrata.service.stores.buckets import BucketStore

    own = our_cache("spool", hashlib.sha256(root.encode()).hexdigest()[:16])
    return BucketStore(Storage(root), spool=spool or own)


@contextmanager
def _private() -> Iterator[None]:
    """Create files that only this user can read."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _root(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("wanted a folder, or s3://bucket/prefix. Found: empty text")
    try:
        check_store(text)
    except AddressError as error:
        raise argparse.ArgumentTypeError(f"w{str(error)[1:]}") from None
    if "://" in text and not is_s3(text):
        raise argparse.ArgumentTypeError(f"wanted a folder, or s3://bucket/prefix. Found: {text}")
    return text


def _host_name(text: str) -> str:
    found = authority(text)
    if found is None or found[1]:
        raise argparse.ArgumentTypeError(f"wanted a host name without a port. Found: {text!r}")
    return text


def _proxy(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"wanted an address or a network such as 10.0.0.0/8. Found: {text!r}"
        ) from None


def _is_loopback(host: str) -> bool:
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise OSError(f"Wanted an address to listen on. Found: {host!r}: {error.strerror}") from None
    return all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)
