"""The registry of a keyspace in Python: what it has, what people say about it, and where everything comes from.

Example::

    with Registry("digits", hosts=["127.0.0.1"]) as registry:
        for item in registry.items():
            print(item.kind, item.title, item.owner)
        changes = registry.plan("definitions/")
        registry.apply(changes)
        print(as_text(registry.lineage("splits/digits")))

The command `imagestrata registry` does the same.
"""

import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Self

from etl.cassandra import registry
from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control
from etl.cassandra.registry import DATASET, KINDS, MODEL, Entry
from etl.catalog import definitions
from etl.catalog.contents import READ_KINDS, Item, contents
from etl.catalog.definitions import Change
from etl.catalog.drawing import as_svg, as_text
from etl.catalog.lineage import Lineage, Tracer, UsedImages
from etl.catalog.products import Product, digest_of_file, product_at, register_product
from etl.errors import TableError
from etl.tls import Tls
from formats.local_node import LocalNode
from loader import Access
from loader.errors import OptionError
from schemas import TableName
from schemas.tables import check_keyspace

__all__ = ["Change", "Item", "Lineage", "Product", "Registry", "as_svg", "as_text", "product_at"]

ALL_KINDS = (*KINDS, *READ_KINDS)


class Registry:
    """The registry of a keyspace. A context manager: it is connected inside the block. Without ``hosts`` and ``port``,
    the Cassandra is the one that `imagestrata up` started, else 127.0.0.1 port 9042. Raises `IdentifierError` for a
    keyspace that is not a valid name, `OptionError` as `loader.Access` does, and on entering `UnreachableError`.
    User, password and certificates are those of ``access``, else of the environment, as for `loader.Cluster`, else
    those of the Cassandra of `imagestrata up`.
    """

    def __init__(
        self,
        keyspace: str,
        *,
        hosts: Sequence[str] | None = None,
        port: int | None = None,
        username: str | None = None,
        password: str | None = None,
        access: Access | None = None,
    ) -> None:
        self.keyspace = check_keyspace(keyspace)
        access = access or Access.from_environment(username=username, password=password)
        self._control = control_at(hosts, port, access=access)

    def __enter__(self) -> Self:
        self._control.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._control.__exit__()

    @property
    def cluster(self) -> Cluster:
        """The Cassandra that it is connected to."""
        return self._control.cluster

    def items(self, kind: str | None = None) -> list[Item]:
        """Everything that the keyspace has, or everything of one kind: ``feature view``, ``split``, ``run``, ..."""
        found = contents(self._control, keyspace=self.keyspace)
        return [item for item in found if kind is None or _is_of(item.kind, kind)]

    def find(self, name: str, kind: str | None = None) -> Item:
        """Find one thing by its name, with ``@vN`` or else in its newest version. Splits and shard sets may be named by
        a relative path. Raises `TableError` if there is none, or if there are several and no ``kind`` is given.
        """
        names = {name, os.path.abspath(name)}
        found = [item for item in self.items(kind) if names & {item.title, item.name}]
        kinds = sorted({item.kind for item in found})
        if len(kinds) == 1:
            return found[0]
        wanted = f"Wanted {f'the {kind} ' if kind else ''}{name} in {self.keyspace}."
        if not found:
            raise TableError(
                f"{wanted} Found: nothing of this name. `imagestrata registry list -k {self.keyspace}` shows the names."
            )
        raise TableError(f"{wanted} Found: a {' and a '.join(kinds)}. Name the kind, too.")

    def describe(
        self,
        item: Item,
        *,
        owner: str | None = None,
        description: str | None = None,
        tags: Mapping[str, str] = MappingProxyType({}),
    ) -> Item:
        """Change what people say about a thing, and return it. None keeps a text; an empty value removes a tag. Raises
        `TableError` for a thing that is read from the tables of ingests, and `UnreachableError`.
        """
        entry = item.entry
        if entry is None and item.kind == DATASET:
            registry.create(self._control, keyspace=self.keyspace)
            new = Entry(kind=DATASET, name=item.title, version=1, document="{}")
            entry = registry.register(self._control, new, keyspace=self.keyspace)
        if entry is None:
            raise TableError(
                f"Wanted something that can be described. Found: {item.kind} {item.title}. Describe its dataset."
            )
        changed = registry.describe(
            self._control, entry, keyspace=self.keyspace, owner=owner, description=description, tags=tags
        )
        return replace(item, entry=changed, summary=changed.description)

    def add(self, product: Product) -> Entry:
        """Register what `product_at` describes. Raises `TableError`, `UnreachableError`."""
        return register_product(self._control, product, keyspace=self.keyspace)

    def plan(self, place: str, *, prune: bool = False, drop_values: bool = False) -> list[Change]:
        """Compare definitions, in a TOML file or a folder of them, with the registry, and return the changes for
        `apply`. ``prune`` removes what the definitions do not have; ``drop_values`` allows that the values of removed
        feature views are dropped. Raises `EtlError` if a file is wrong or a change is not allowed.
        """
        wanted = definitions.read_definitions(place)
        return definitions.plan_changes(
            self._control, wanted, keyspace=self.keyspace, prune=prune, drop_values=drop_values
        )

    def plan_removal(self, item: Item, *, drop_values: bool = False) -> list[Change]:
        """Plan the removal of a registered object, and return the change for `apply`. ``drop_values`` allows that the
        values of a feature view are dropped. Raises `ConflictError` if something uses it or values would be dropped,
        and `TableError` if it is not in the registry.
        """
        if item.entry is None:
            raise TableError(f"Wanted something that is registered. Found: the {item.kind} {item.title}, which is not.")
        return [definitions.removal(self._control, item.entry, keyspace=self.keyspace, drop_values=drop_values)]

    def apply(self, changes: Sequence[Change]) -> None:
        """Make changes that were planned. Raises `ConflictError`, `UnreachableError`."""
        definitions.apply_changes(self._control, changes, keyspace=self.keyspace)

    def images_of_model(self, checkpoint: str) -> tuple[str, list[UsedImages]]:
        """The title of a model, and the images that it used. Raises as `lineage` does, and `TableError` for what is no
        model.
        """
        found = self.lineage(checkpoint)
        if found.subject.kind != MODEL:
            raise TableError(f"Wanted a checkpoint, for --since-then. Found: {found.subject.key}.")
        return found.subject.name, Tracer(self._control, keyspace=self.keyspace).used_by(found)

    def lineage(self, target: str, *, metadata: TableName | None = None, id_column: str = "id") -> Lineage:
        """Where something comes from, and what was made from it. ``target`` is the id or path of an image, or the
        address of a split, a shard set, exported features or a checkpoint. A path needs ``metadata``, and may begin
        with the split folder.
        Raises `EtlError` if nothing is known of it or Cassandra does not answer, `FormatsError` and `SchemaError` if
        its files or manifest cannot be read.
        """
        tracer = Tracer(self._control, keyspace=self.keyspace)
        if (image := image_id(target)) is not None:
            if metadata is None:
                raise TableError(f"Wanted the metadata table of the image {image}. Found: none.")
            return tracer.of_image(image, metadata=metadata, id_column=id_column)
        product = product_at(target)
        if product is not None:
            return tracer.of_product(product)
        if metadata is not None and (image := tracer.image_at(target, metadata=metadata, id_column=id_column)):
            return tracer.of_image(image, metadata=metadata, id_column=id_column)
        if os.path.isfile(target):
            return tracer.of_model(digest_of_file(target), name=target)
        raise TableError(
            "Wanted the id of an image, or its path with -m KS.TABLE, or a split, a shard set, exported features or a "
            "checkpoint. "
            f"Found: nothing of this kind at {target}."
        )


def image_id(text: str) -> uuid.UUID | None:
    """The id in a text; None for other texts."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def kind_of(text: str) -> str | None:
    """The kind that a word of the command line names, ``feature-view`` or ``feature view``; None for other words."""
    kind = text.replace("-", " ")
    return kind if any(_is_of(kind, one) for one in ALL_KINDS) else None


def _is_of(found: str, kind: str) -> bool:
    return found == kind or found.startswith(f"{kind} of ")


def control_at(hosts: Sequence[str] | None, port: int | None, *, access: Access) -> Control:
    """Control queries to these contact points, else to the Cassandra of `imagestrata up`, else to 127.0.0.1. Raises
    `OptionError` for hosts beside a secure connect bundle, and for certificates that cannot be read.
    """
    if access.bundle is not None:
        if hosts is not None or port is not None:
            raise OptionError(f"Wanted hosts or a bundle, which names its hosts. Found: both, and {access.bundle}")
        return Control(
            Cluster((), username=access.username, bundle=os.path.abspath(access.bundle)), password=access.password
        )
    node = LocalNode.find() if hosts is None else None
    address = tuple(hosts or (node.hosts if node else ("127.0.0.1",)))
    port = port or (node.port if node else 9042)
    if access == Access() and (node := LocalNode.at(address, port)) is not None:
        access = Access.from_environment(node.variables("writer"))
    context, tls = access.strict_tls(), None
    if access.ca is not None:
        certificate = None if access.certificate is None else Path(access.certificate).read_text(encoding="utf-8")
        tls = Tls(Path(access.ca).read_text(encoding="utf-8"), certificate)
    cluster = Cluster(hosts=address, port=port, username=access.username, tls=tls)
    return Control(cluster, password=access.password, tls=context)
