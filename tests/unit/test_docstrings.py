"""Public names document their arguments; every other docstring is one paragraph, without lists of arguments.

Public is what docs/reference/api.md shows. `make check` runs pydoclint, which compares arguments with the signatures.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("schemas", "formats", "etl", "jobs", "loader", "training", "imagestrata")
SECTIONS = ("Args:", "Attributes:", "Returns:", "Yields:", "Raises:")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def definition_of(module: str, name: str) -> tuple[Path, Definition]:
    """The file of a name and its definition, also where a module imports it from another one."""
    base = ROOT.joinpath(*module.split("."))
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    for node in tree_of(file).body:
        if isinstance(node, Definition) and node.name == name:
            return file, node
    for node in ast.walk(tree_of(file)):  # imports for type checkers stand under `if`
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for imported in node.names:
                if name == (imported.asname or imported.name):
                    return definition_of(node.module, imported.name)
    raise LookupError(f"{module} defines and imports no {name!r}.")


def public() -> Iterator[tuple[Path, Definition, bool]]:
    """The functions and classes that the API reference shows, and whether it shows their arguments or methods."""
    module = ""
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    for kind, name, hidden, members in re.findall(
        r"^\.\. (currentmodule|auto\w+):: ([\w.]+)(\(\))?(\n +:members:)?", page, re.M
    ):
        package, _, last = name.rpartition(".")
        if kind == "currentmodule":
            module = name
        else:
            yield *definition_of(package or module, last), bool(members or not hidden)


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


def long_docstrings(body: list[ast.stmt], shown: list[Definition]) -> Iterator[Definition]:
    """The functions and classes that are not public and have a docstring of several paragraphs or with sections."""
    for node in body:
        if not isinstance(node, Definition) or (node in shown and not isinstance(node, ast.ClassDef)):
            continue
        doc = ast.get_docstring(node) or ""
        if node not in shown and ("\n\n" in doc or any(re.search(rf"^\s*{one}", doc, re.M) for one in SECTIONS)):
            yield node
        public_methods = node in shown and isinstance(node, ast.ClassDef)
        members = [
            one
            for one in node.body
            if not (public_methods and isinstance(one, Definition) and (one.name[0] != "_" or one.name == "__init__"))
        ]
        yield from long_docstrings(members, shown)


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


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(a, b):\n  '''X. Raises ValueError for no b.'''", []),
        ("def f(a):\n  '''X.\n\n  Y.\n  '''", ["f"]),
        ("def f(a):\n  '''X.\n  Args:\n    a: A.\n  '''", ["f"]),
        ("class C:\n  '''X.'''\n  def m(self):\n    '''X.\n\n    Y.\n    '''", ["m"]),
        ("def f():\n  def g():\n    '''X.\n\n    Y.\n    '''", ["g"]),
    ],
)
def test_long_docstrings_are_found(source: str, found: list[str]) -> None:
    assert [node.name for node in long_docstrings(ast.parse(source).body, [])] == found


def test_public_functions_document_their_arguments_and_what_they_return() -> None:
    surface = [(file, node) for file, node, detailed in public() if detailed]
    assert len(surface) > 40
    lacking = sorted(f"{file.relative_to(ROOT)}: {gap}" for file, node in surface for gap in gaps(node))
    assert not lacking, "\n".join(["Document the arguments of:", *lacking])


@pytest.mark.parametrize("package", PACKAGES)
def test_other_docstrings_are_one_paragraph(package: str) -> None:
    shown = [node for _, node, _ in public()]
    long = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
        for file in sorted((ROOT / package).rglob("*.py"))
        for node in long_docstrings(tree_of(file).body, shown)
    ]
    assert not long, "\n".join(["Not in the API reference, so say it in one paragraph without sections:", *long])
