"""Checks of the parts of a job file that only Kubernetes uses: names, labels and resources."""

from collections.abc import Callable, Iterator
from decimal import Decimal

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from imagestrata.training_jobs.documents import Document, Fields
from imagestrata.training_jobs.kubernetes_names import (
    amount,
    check_image,
    check_key,
    check_label,
    check_label_value,
    check_object_name,
)

# A device belongs to one container.
GPUS = ("nvidia.com/gpu", "amd.com/gpu")
MOST_GPUS = 128

_Check = Callable[[str, str], None]
# Paths of names in a container and in the spec of a pod; * is each item of a list.
_OF_CONTAINERS: dict[str, _Check] = {
    "env.*.valueFrom.secretKeyRef.name": check_object_name,
    "env.*.valueFrom.configMapKeyRef.name": check_object_name,
    "envFrom.*.secretRef.name": check_object_name,
    "envFrom.*.configMapRef.name": check_object_name,
    "volumeMounts.*.name": check_label,
    "volumeDevices.*.name": check_label,
}
_OF_PODS: dict[str, _Check] = {
    "volumes.*.name": check_label,
    "volumes.*.persistentVolumeClaim.claimName": check_object_name,
    "volumes.*.secret.secretName": check_object_name,
    "volumes.*.configMap.name": check_object_name,
    "imagePullSecrets.*.name": check_object_name,
    "serviceAccountName": check_object_name,
    "priorityClassName": check_object_name,
    "runtimeClassName": check_object_name,
    "initContainers.*.name": check_label,
    "initContainers.*.image": check_image,
    **{f"initContainers.*.{path}": check for path, check in _OF_CONTAINERS.items()},
}


def check_container(document: Document, fields: Fields) -> None:
    """Check the names in a container."""
    _check_names(document, fields, _OF_CONTAINERS)


def check_pod(document: Document, fields: Fields) -> None:
    """Check the names in the spec of a pod, except those of its containers."""
    _check_names(document, fields, _OF_PODS)
    document.text_fields(fields.get("nodeSelector"), "nodeSelector")
    check_labels(document, fields.get("nodeSelector"), "nodeSelector")


def check_labels(document: Document, node: Node | None, what: str) -> None:
    """Check the keys and values of labels."""
    check_annotations(document, node, what)
    for name, value in _entries(node):
        if isinstance(document.plain(value), str):
            _checked(document, value, f"the value of {name.value} in {what}", check_label_value)


def check_annotations(document: Document, node: Node | None, what: str) -> None:
    """Check the keys of annotations."""
    for name, _ in _entries(node):
        _checked(document, name, f"a key of {what}", check_key)


def resources(document: Document, fields: Fields) -> tuple[int, int | None]:
    """Return the number of GPUs of a container, and its memory limit in bytes."""
    found = document.fields(fields.get("resources"), "resources", ("limits", "requests", "claims"))
    limits, requests = (_amounts(document, found.get(name), f"resources.{name}") for name in ("limits", "requests"))
    for name, (node, value) in requests.items():
        limit = limits[name][1] if name in limits else None
        if name in GPUS and limit != value:
            document.tell(
                node,
                f"Wanted {name} with the same number in limits as in requests. Found: {document.shown(node)} in "
                f"requests, {'nothing' if limit is None else f'{limit:f}'} in limits (set it in limits only)",
            )
        elif limit is not None and value > limit:
            document.tell(node, f"Wanted {name} in requests not above its limit. Found: {document.shown(node)}")
    gpus = 0
    for name in GPUS:
        if name in limits:
            node, value = limits[name]
            if value != int(value) or value > MOST_GPUS:
                document.tell(node, f"Wanted {name}, a whole number up to {MOST_GPUS}. Found: {document.shown(node)}")
            else:
                gpus += int(value)
    return gpus, int(limits["memory"][1]) if "memory" in limits else None


def _amounts(document: Document, node: Node | None, what: str) -> dict[str, tuple[Node, Decimal]]:
    made: dict[str, tuple[Node, Decimal]] = {}
    if node is not None and not isinstance(node, MappingNode):
        document.tell(node, f"Wanted {what}, names with quantities. Found: {document.shown(node)}")
    for name, value in _entries_by_name(node):
        try:
            made[name] = value, amount(document.plain(value), f"{name} in {what}")
        except ValueError as error:
            document.tell(value, str(error))
    return made


def _check_names(document: Document, fields: Fields, places: dict[str, _Check]) -> None:
    for path, check in places.items():
        first, *rest = path.split(".")
        if first in fields:
            what = ".".join(part for part in path.split(".") if part != "*")
            for node in _at(fields[first], rest):
                _checked(document, node, what, check)


def _at(node: Node, path: list[str]) -> Iterator[Node]:
    if not path:
        yield node
    elif path[0] == "*":
        for item in node.value if isinstance(node, SequenceNode) else ():
            yield from _at(item, path[1:])
    else:
        for name, value in _entries_by_name(node):
            if name == path[0]:
                yield from _at(value, path[1:])


def _checked(document: Document, node: Node, what: str, check: _Check) -> None:
    if document.plain(node) is not None:  # Kubernetes treats null as missing
        document.text(node, what, lambda found: check(found, what))


def _entries(node: Node | None) -> Iterator[tuple[ScalarNode, Node]]:
    if isinstance(node, MappingNode):
        yield from ((name, value) for name, value in node.value if isinstance(name, ScalarNode))


def _entries_by_name(node: Node | None) -> Iterator[tuple[str, Node]]:
    return ((str(name.value), value) for name, value in _entries(node))
