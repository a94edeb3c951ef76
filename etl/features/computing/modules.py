"""The user's own modules that a module imports, found without running them.

A module is the user's own if it is in the same top-level package, or if it was not installed: it is no part of Python,
of Spark or of imagestrata, is in no folder ``site-packages``, and no ``*.dist-info`` beside it names it.
"""

import ast
import importlib.metadata
import importlib.util
import os
import pkgutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

_SOURCE = ".py"
_OURS = frozenset({"schemas", "formats", "etl", "jobs", "loader", "imagestrata", "pyspark", "py4j"})
"""Packages that may be anywhere: on executors they can come from a zip or from Spark's own folder."""
_PYTHON = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
_INSTALLED = {"site-packages", "dist-packages"}
_BY_NAME = {"import_module", "__import__"}


def own_modules(module: str) -> dict[str, bytes]:
    """The files of a module and of the user's own modules that it imports, in functions too and through each other, by
    name. A module that is not there is left out: its import may be optional. So are names that are computed, what a
    compiled module imports, and ``module`` itself if it has no source text.
    """
    specs, found, waiting, seen = _Specs(), dict[str, bytes](), [module], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        waiting += [name.rpartition(".")[0]] if "." in name else []  # Python runs a package before its modules
        spec = specs.of(name)
        if spec is None or not (name == module or specs.is_own(spec, beside=module)):
            continue
        content, is_text = _content(spec), str(spec.origin).endswith(_SOURCE)
        if content is None or (name == module and not is_text):  # such as a namespace package
            continue
        found[name] = content
        waiting += specs.imported(content, package=spec.parent or "") if is_text else []
    return found


class _Specs:
    """Where modules are now, by name, whether they were imported or not."""

    def __init__(self) -> None:
        self._found: dict[str, ModuleSpec | None] = {}
        self._installed: dict[Path, frozenset[str]] = {}

    def of(self, name: str) -> ModuleSpec | None:
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> ModuleSpec | None:
        package, is_inside, _ = name.rpartition(".")
        if is_inside:
            parent = self.of(package)
            return None if parent is None else _inside(name, parent.submodule_search_locations or ())
        finders = (one for one in sys.meta_path if hasattr(one, "find_spec"))
        return next(filter(None, (one.find_spec(name, None) for one in finders)), None)

    def is_own(self, spec: ModuleSpec, *, beside: str) -> bool:
        """Whether a module belongs to the user's code, that of ``beside``."""
        top = spec.name.partition(".")[0]
        if top in _OURS:
            return False
        if top == beside.partition(".")[0] or spec.loader is None or not spec.has_location:
            return True
        place = Path(spec.origin or "")
        is_package = spec.submodule_search_locations is not None
        entry = place.parents[spec.name.count(".") + is_package]
        return (
            not _INSTALLED.intersection(place.parts)
            and not _PYTHON.intersection(place.resolve().parents)
            and top not in self._names_installed(entry)
        )

    def _names_installed(self, entry: Path) -> frozenset[str]:
        """The modules and packages that ``pip --target`` installed into a folder or archive on the path."""
        if entry not in self._installed:
            found = importlib.metadata.distributions(path=[str(entry)])
            files = (file for one in found if one.read_text("RECORD") for file in one.files or ())
            self._installed[entry] = frozenset(file.parts[0].removesuffix(_SOURCE) for file in files)
        return self._installed[entry]

    def imported(self, source: bytes, *, package: str) -> list[str]:
        """The names of all modules that a source text may import, and of what could be one. A text that is no Python
        imports nothing, because it never runs.
        """
        try:
            nodes = list(ast.walk(ast.parse(source)))
        except (SyntaxError, ValueError):
            return []
        found: list[str] = []
        for node in nodes:
            match node:
                case ast.Import():
                    found += [one.name for one in node.names]
                case ast.ImportFrom(level=level, module=module):
                    base = _absolute("." * level + (module or ""), package=package)
                    found += [base, *(name for one in node.names for name in self._members(base, one.name))]
                case ast.Call(func=ast.Name(id=how) | ast.Attribute(attr=how), args=[ast.Constant(str(name)), *_]):
                    found += [_absolute(name, package=package)] if how in _BY_NAME else []
        return [name for name in found if name]

    def _members(self, package: str, name: str) -> Iterator[str]:
        """What ``from package import name`` may import; of ``*``, each module of the package."""
        spec = self.of(package) if package and name == "*" else None
        if spec is not None:
            places = list(spec.submodule_search_locations or ())
            yield from (f"{package}.{one.name}" for one in pkgutil.iter_modules(places))
        elif package:
            yield f"{package}.{name}"


def _absolute(name: str, *, package: str) -> str:
    """The name of a module without leading dots; empty if there is none."""
    try:
        return importlib.util.resolve_name(name, package)
    except ImportError:  # above the topmost package
        return ""


def _inside(name: str, places: Sequence[str]) -> ModuleSpec | None:
    """Find a module in the folders of its package, as Python does, but without importing the package."""
    parts: list[str] = []
    for place in places:
        finder = pkgutil.get_importer(place or os.curdir)
        spec = None if finder is None else finder.find_spec(name)
        if spec is not None and spec.loader is not None:
            return spec
        parts += [] if spec is None else spec.submodule_search_locations or []
    if not parts:
        return None
    found = ModuleSpec(name, None, is_package=True)
    found.submodule_search_locations = parts
    return found


def _content(spec: ModuleSpec) -> bytes | None:
    if not spec.has_location or spec.origin is None:
        return None
    read = getattr(spec.loader, "get_data", None)
    return Path(spec.origin).read_bytes() if read is None else bytes(read(spec.origin))
