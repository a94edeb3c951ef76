"""YAML with line numbers: all problems of a file are reported together, each with its line."""

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from imagestrata.training_jobs.errors import JobFileError

_MOST_BYTES, _MOST_VALUES = 1 << 20, 20_000
_PLAIN = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null"))
_NULL = "tag:yaml.org,2002:null"
_MERGE = "tag:yaml.org,2002:merge"

Fields = Mapping[str, Node]


class Document:
    """The nodes of a YAML file, and the problems found in them. An absent node (None) is read as an empty one."""

    def __init__(self, path: Path) -> None:
        """Parse a file. Raises `JobFileError` for invalid YAML, OSError if it cannot be read."""
        self.name = path.name
        self._told: dict[tuple[int, str], None] = {}
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            self._end(0, f"Wanted a job file of at most {_MOST_BYTES:,} bytes. Found: more")
        try:
            self._loader = _Loader(data)
            root: Node | None = self._loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            said = ", ".join(filter(None, (error.context, error.problem)))
            self._end(mark.line if mark else 0, f"Wanted YAML, one document. Found: {said}")
        except (yaml.YAMLError, UnicodeError) as error:
            self._end(0, f"Wanted YAML. Found: {' '.join(str(error).split())}")
        except RecursionError:
            self._end(0, "Wanted YAML of a job. Found: hundreds of nested lists or fields")
        if root is None:
            self._end(0, "Wanted a job. Found: an empty file")
        self.root: Node = root
        self._walk()

    def tell(self, node: Node, message: str) -> None:
        """Record a problem at a node."""
        self._told[node.start_mark.line + 1, message] = None

    def check(self) -> None:
        """Raise `JobFileError` if there are problems."""
        if self._told:
            raise JobFileError([f"{self.name}:{line}: {message}" for line, message in sorted(self._told)])

    def fields(self, node: Node | None, what: str, known: Collection[str], needed: Collection[str] = ()) -> Fields:
        """Return the fields of a mapping by name. Unknown and missing ones are recorded as problems."""
        if node is None:
            return {}
        if not isinstance(node, MappingNode):
            self.tell(node, f"Wanted {what} with fields ({', '.join(needed or known)}). Found: {self.shown(node)}")
            return {}
        found: dict[str, Node] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                continue  # the walk records it
            if key.value in known:
                found.setdefault(key.value, value)
                continue
            near = get_close_matches(key.value, known, 1)
            hint = f"did you mean {near[0]}?" if near else "it may have " + ", ".join(sorted(known)[:12])
            self.tell(key, f"Wanted a field of {what}. Found: {key.value!r} ({hint})")
        for name in needed:
            if name not in found:
                self.tell(node, f"Wanted {name} in {what}. Found: none (add it)")
        return found

    def text(self, node: Node, what: str, check: Callable[[str], object] | None = None) -> str:
        """Return a text. Problems that ``check`` raises are recorded."""
        value = self.plain(node)
        if not isinstance(value, str):
            hint = f" (put it in quotes: {value_text(node)!r})" if isinstance(value, bool | int | float) else ""
            self.tell(node, f"Wanted {what}, a text. Found: {self.shown(node)}{hint}")
            return ""
        try:
            if check is not None:
                check(value)
        except ValueError as error:
            self.tell(node, str(error))
        return value

    def count(self, node: Node | None, what: str, least: int, most: int) -> int:
        """Return a whole number from ``least`` to ``most``; by default ``least``."""
        if node is None:
            return least
        value = self.plain(node)
        if type(value) is not int or not least <= value <= most:
            self.tell(node, f"Wanted {what}, a whole number from {least} to {most:,}. Found: {self.shown(node)}")
            return least
        return value

    def items(self, node: Node | None, what: str) -> list[Node]:
        """Return the items of a list."""
        if node is None:
            return []
        if not isinstance(node, SequenceNode):
            self.tell(node, f"Wanted {what}, a list. Found: {self.shown(node)}")
            return []
        return list(node.value)

    def texts(self, node: Node | None, what: str) -> tuple[str, ...]:
        """Return a list of texts."""
        return tuple(self.text(item, f"an item of {what}") for item in self.items(node, what))

    def text_fields(self, node: Node | None, what: str) -> dict[str, str]:
        """Return a mapping of texts."""
        if node is None:
            return {}
        if not isinstance(node, MappingNode):
            self.tell(node, f"Wanted {what}, names with texts. Found: {self.shown(node)}")
            return {}
        return {str(key.value): self.text(value, f"{key.value} of {what}") for key, value in node.value}

    def plain(self, node: Node) -> Any:
        """Return a node as plain Python values."""
        if isinstance(node, MappingNode):
            return {str(key.value): self.plain(value) for key, value in node.value}
        if isinstance(node, SequenceNode):
            return [self.plain(item) for item in node.value]
        return self._scalar(node)

    def shown(self, node: Node) -> str:
        """Describe a node briefly."""
        if isinstance(node, ScalarNode):
            return "nothing" if node.tag == _NULL else repr(self._scalar(node))[:80]
        kind = "a list" if isinstance(node, SequenceNode) else "fields"
        return f"{kind}, {len(node.value)} of them"

    def _scalar(self, node: Node) -> Any:
        try:
            return self._loader.construct_object(node) if node.tag in _PLAIN else value_text(node)
        except (ValueError, yaml.YAMLError):  # an integer with too many digits for Python
            return value_text(node)

    def _walk(self) -> None:
        """Check all nodes for what no job may have. Raises `JobFileError` for endless aliases."""
        waiting, values = [(self.root, 0)], 0
        while waiting:
            node, depth = waiting.pop()
            values += 1
            if values > _MOST_VALUES or depth > 60:  # an alias may contain itself, or others a million times
                self._end(node.start_mark.line, f"Wanted at most {_MOST_VALUES:,} values, 60 deep. Found: more")
            if isinstance(node, ScalarNode):
                if node.tag not in _PLAIN:
                    self.tell(node, f"Wanted texts, numbers, true, false and null. Found: the tag {node.tag}")
            elif isinstance(node, MappingNode):
                self._check_keys(node)
                waiting += [(value, depth + 1) for _, value in node.value]
            else:
                waiting += [(item, depth + 1) for item in node.value]

    def _check_keys(self, node: MappingNode) -> None:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, ScalarNode) or not isinstance(self._scalar(key), str) or key.tag == _MERGE:
                self.tell(key, f"Wanted names of fields, as texts. Found: {self.shown(key)}")
            elif key.value in seen:
                self.tell(key, f"Wanted each field once. Found: {key.value!r} again, after line {seen[key.value]}")
            else:
                seen[key.value] = key.start_mark.line + 1

    def _end(self, line: int, message: str) -> NoReturn:
        raise JobFileError([f"{self.name}:{line + 1}: {message}"])


def value_text(node: Node) -> str:
    """Return a scalar as it is written."""
    return str(node.value)


class _Loader(yaml.SafeLoader):
    """A loader that reads dates as texts."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
