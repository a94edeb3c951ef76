"""Public functions document their arguments. `make check` runs pydoclint, which compares them with the signatures."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Packages whose whole public surface is what their `__all__` exports.
EXPORTERS = ("loader/__init__.py", "loader/shards/__init__.py", "imagestrata/hub/__init__.py")
# Packages whose public surface is what modules of other packages import.
SHARED = ("schemas", "formats", "etl")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imports_of(file: Path) -> Iterator[tuple[str, str]]:
    """The module and the name of everything that a file imports by name."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, name.name) for name in node.names)


def definition_of(module: str, name: str) -> tuple[str, Definition] | None:
    """The file of a name and its definition; None where the module defines no function or class of that name."""
    file = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    if not file.is_file():
        return None
    for node in tree_of(file).body:
        if isinstance(node, Definition) and node.name == name:
            return file.relative_to(ROOT).as_posix(), node
    return None


def exported(file: Path) -> Iterator[tuple[str, Definition]]:
    """The functions and classes in a package's ``__all__``."""
    lists = [
        n.value for n in tree_of(file).body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"
    ]
    names = ast.literal_eval(lists[0])
    yield from (found for module, name in imports_of(file) if name in names and (found := definition_of(module, name)))


def shared() -> Iterator[tuple[str, Definition]]:
    """The functions of `SHARED` that another package imports."""
    for package in ("schemas", "formats", "etl", "jobs", "loader", "training", "imagestrata"):
        for file in (ROOT / package).rglob("*.py"):
            for module, name in imports_of(file):
                owner = module.partition(".")[0]
                found = definition_of(module, name) if owner in SHARED and owner != package else None
                if found and not isinstance(found[1], ast.ClassDef):
                    yield found


def public() -> Iterator[tuple[str, Definition]]:
    for name in EXPORTERS:
        yield from exported(ROOT / name)
    yield from shared()
    for file in (ROOT / "jobs").glob("*.py"):
        module = f"jobs.{file.stem}"
        yield from (found for found in [definition_of(module, "run")] if found)


def gaps(node: Definition, doc: str | None = None, owner: str = "") -> list[str]:
    """The missing sections of a function, or of the public methods of a class.

    A function needs ``Args:`` if it takes two arguments or more, and then ``Returns:`` (or ``Yields:``) if it returns a
    value. A class documents the arguments of its constructor, or a dataclass its fields, in its own docstring.
    """
    doc = doc if doc is not None else ast.get_docstring(node) or ""
    if isinstance(node, ast.ClassDef):
        functions = [child for child in node.body if isinstance(child, ast.FunctionDef)]
        fields = [child for child in node.body if isinstance(child, ast.AnnAssign)]
        found = [gap for child in functions if child.name[0] != "_" for gap in gaps(child, owner=f"{node.name}.")]
        if any("dataclass" in ast.unparse(one) for one in node.decorator_list) and len(fields) > 1:
            found += [] if "Attributes:" in doc or "Args:" in doc else [f"{node.name} lacks Attributes:"]
        found += [gap for child in functions if child.name == "__init__" for gap in gaps(child, doc, f"{node.name}.")]
        return found
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
    if len([one for one in given if one is not None and one.arg not in ("self", "cls")]) < 2:
        return []
    returns = ast.unparse(node.returns).strip("'\"") if node.returns else "None"
    wanted = [("Args:",)] if returns in ("None", "NoReturn") else [("Args:",), ("Returns:", "Yields:")]
    return [f"{owner}{node.name} lacks {any_of[0]}" for any_of in wanted if not any(one in doc for one in any_of)]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(a): ...", []),
        ("def f(a, *, b) -> None: ...", ["f lacks Args:"]),
        ("def f(a, b) -> int:\n  '''X.\n\n  Args:\n    a: A.\n  '''", ["f lacks Returns:"]),
        ("def f(a, b) -> Iterator[int]:\n  '''X.\n\n  Args:\n    a: A.\n  Yields:\n    B.\n  '''", []),
        ("class C:\n  '''X.'''\n  def __init__(self, a, b): ...", ["C.__init__ lacks Args:"]),
        ("class C:\n  '''X.\n\n  Args:\n    a: A.\n  '''\n  def __init__(self, a, b): ...", []),
        ("class C:\n  def m(self, a, b): ...\n  def _n(self, a, b): ...", ["C.m lacks Args:"]),
        ("@dataclass(frozen=True)\nclass C:\n  a: int\n  b: int", ["C lacks Attributes:"]),
    ],
)
def test_gaps_in_docstrings_are_found(source: str, found: list[str]) -> None:
    node = ast.parse(source).body[0]
    assert isinstance(node, Definition)
    assert gaps(node) == found


def test_public_functions_document_their_arguments_and_what_they_return() -> None:
    surface = {(file, node.name): node for file, node in public()}
    assert len(surface) > 80
    lacking = sorted(f"{file}: {gap}" for (file, _), node in surface.items() for gap in gaps(node))
    assert not lacking, "\n".join(["Document the arguments of:", *lacking])
