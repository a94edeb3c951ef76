"""Rules of the code: arrows between packages point one way, tests mirror the packages, files name no machine."""

import ast
import graphlib
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import misplaced

ROOT = Path(__file__).resolve().parents[2]
# Which package may import which, besides itself. benchmarks and tests may import all; nothing else imports imagestrata.
ARROWS = {
    "schemas": set(),
    "formats": {"schemas"},
    "etl": {"formats", "schemas"},
    "jobs": {"etl", "formats", "schemas"},
    "loader": {"formats", "schemas"},
    "training": {"loader", "formats", "schemas"},
    "imagestrata": {"jobs", "etl", "loader", "formats", "schemas"},
}
PACKAGES = {*ARROWS, "benchmarks", "tests"}
# The files or packages in which a library may be imported.
DOORS = {
    "acsylla": ("etl/cassandra/", "loader/cassandra/", "imagestrata/devstack/"),
    "cassandra": ("etl/cassandra/", "loader/cassandra/", "imagestrata/devstack/"),
    "fsspec": ("formats/stores/storage.py", "formats/stores/addresses.py"),
    "s3fs": ("formats/stores/storage.py",),
    "pyspark": ("schemas/", "etl/", "jobs/"),
    "torch": ("loader/", "training/", "imagestrata/demo/", "imagestrata/training_jobs/"),
    "torchvision": ("training/",),
    "lightning": ("loader/lightning.py", "training/examples/"),
}
# The rooms of its package that each room may import; all may import the package's top-level modules, except its TOP.
ROOMS = {
    "etl": {
        "pictures": set(),
        "sources": {"pictures"},
        "cassandra": set(),
        "tables": {"cassandra"},
        "writing": set(),
        "ingest": {"cassandra", "pictures", "sources", "tables"},
        "labels": {"cassandra", "sources", "tables"},
        "verify": {"cassandra", "catalog", "ingest", "labels", "sources", "splits", "tables"},
        "features": {"cassandra", "ingest", "labels", "pictures", "tables", "writing"},
        "catalog": {"cassandra", "features", "labels", "tables"},
        "splits": {"cassandra", "features", "labels", "tables", "writing"},
        "migration": {"cassandra", "ingest", "sources", "tables"},
        "deleting": {"cassandra", "features", "ingest", "splits", "tables"},
        "shards": {"cassandra", "features", "ingest", "pictures", "sources", "splits", "tables"},
    },
    "loader": {
        "order": set(),
        "prefetch": {"order"},
        "cassandra": {"prefetch"},
        "folder": {"prefetch"},
        "s3": {"folder"},
        "shards": {"order", "prefetch", "s3"},
        "mixed": {"order", "prefetch", "cassandra", "folder", "shards"},
        "adapters": {"order", "prefetch", "cassandra", "folder", "s3", "shards", "mixed"},
    },
}
QUIET = ("hub", "service", "training_jobs")  # rooms of imagestrata without Spark and without print
# The loader's top level and its public subpackage combine its rooms. Only adapters know these modules.
TOP = {"loader", *(f"loader.{name}" for name in ("dali", "lightning", "shards", "source", "sources"))}
MOST_LINES = 60  # of a function, without its signature and docstring


def modules() -> list[Path]:
    """Every module of the packages that have such rules."""
    return sorted(file for package in ARROWS for file in (ROOT / package).rglob("*.py"))


@cache
def parsed(file: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(file.read_text(encoding="utf-8"))


def imports(module: ast.Module) -> Iterator[tuple[str, int]]:
    """The top-level names that a module imports, also in functions, with their lines; its own for relative imports."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((name.name.partition(".")[0], node.lineno) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0], node.lineno


@cache
def named_modules() -> dict[str, Path]:
    """Every module of these packages by its dotted name."""
    parts = {file.relative_to(ROOT).with_suffix("").parts: file for file in modules()}
    return {".".join(part for part in names if part != "__init__"): file for names, file in parts.items()}


@cache
def own_imports(name: str) -> set[str]:
    """Our modules that one imports, also in functions and for type checkers."""
    known, found = named_modules(), set()
    nodes: list[ast.AST] = [parsed(known[name])]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            longer = (f"{node.module}.{one.name}" for one in node.names)
            found |= {one if one in known else node.module for one in longer}
        else:
            nodes.extend(ast.iter_child_nodes(node))
    return found & known.keys() - {name}


def room_of(name: str) -> tuple[str, str]:
    """The package and the room of a module; the room is empty for modules directly in the package."""
    package, _, rest = name.partition(".")
    room = rest.partition(".")[0]
    return package, room if room in ROOMS.get(package, ()) else ""


def committed() -> list[Path]:
    """The files that are or would be committed; without git, those of the packages and of the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=False)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.decode("utf-8", "surrogateescape").split("\0") if name]
        return [ROOT / name for name in names if (ROOT / name).is_file()]
    folders = [ROOT / package for package in PACKAGES] + [ROOT / ".ci"]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return [file for file in files if "__pycache__" not in file.parts] + [f for f in ROOT.iterdir() if f.is_file()]


def test_imports_are_found_at_any_level() -> None:
    source = "import a.b as c\nfrom d.e import f\nfrom . import own\ndef g():\n    import h, i\n"
    assert [name for name, _ in imports(ast.parse(source))] == ["a", "d", "h", "i"]


def test_packages_import_only_in_the_documented_direction() -> None:
    turned = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in modules()
        for name, line in imports(parsed(file))
        if name in PACKAGES and name not in ARROWS[file.relative_to(ROOT).parts[0]] | {file.relative_to(ROOT).parts[0]}
    ]
    assert turned == []


def test_libraries_are_imported_only_in_their_modules() -> None:
    strays = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in modules()
        for name, line in imports(parsed(file))
        if name in DOORS and not file.relative_to(ROOT).as_posix().startswith(DOORS[name])
    ]
    assert strays == []


def test_loader_and_formats_never_import_spark_by_name_or_by_string() -> None:
    for package in ("loader", "formats", "training", *(f"imagestrata/{room}" for room in QUIET)):
        for file in (ROOT / package).rglob("*.py"):
            assert not re.search(r"""import_module\(\s*["'](pyspark|etl|jobs)""", file.read_text(encoding="utf-8")), (
                file
            )


def test_no_modules_import_each_other_in_a_circle() -> None:
    found = {name: own_imports(name) for name in named_modules()}
    try:
        tuple(graphlib.TopologicalSorter(found).static_order())
    except graphlib.CycleError as error:
        pytest.fail(f"A circle: {' <- '.join(error.args[1])}")


def test_rooms_import_only_in_the_documented_direction() -> None:
    turned = []
    for name in named_modules():
        package, room = room_of(name)
        for other in own_imports(name) if room and name not in TOP else ():
            its_package, its_room = room_of(other)
            allowed = {"", room, *ROOMS[package][room]}
            if (its_package == package and its_room not in allowed) or (other in TOP and room != "adapters"):
                turned.append(f"{name} imports {other}")
    assert turned == []


def test_each_room_has_its_arrows() -> None:
    for package, rooms in ROOMS.items():
        assert set(rooms) == {folder.name for folder in (ROOT / package).iterdir() if list(folder.glob("*.py"))}


def test_the_floor_of_loader_is_thin() -> None:
    assert len(list((ROOT / "loader").glob("[!_]*.py"))) <= 10


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function's statements."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_functions_are_short_enough_to_read() -> None:
    long = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
        for file in [*modules(), *(ROOT / "benchmarks").rglob("*.py")]
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and lines_of(node) > MOST_LINES
    ]
    assert long == []


def test_no_module_of_jobs_has_the_name_of_one_of_etl() -> None:
    jobs, etl = ({file.stem for file in (ROOT / name).rglob("*.py")} - {"__init__"} for name in ("jobs", "etl"))
    assert jobs & etl == set()


def test_job_names_shadow_no_standard_module() -> None:
    import sys

    assert {file.stem for file in (ROOT / "jobs").glob("*.py")} & set(sys.stdlib_module_names) == set()


def test_print_is_used_only_in_user_facing_code() -> None:
    speaking = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for package in ("schemas", "formats", "etl", "loader", *(f"imagestrata/{room}" for room in QUIET))
        for file in (ROOT / package).rglob("*.py")
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        if file.name != "commands.py"
    ]
    assert speaking == []


def test_every_command_ends_as_formats_command_line_decides() -> None:
    own_endings = []
    for file in modules():
        source = file.read_text(encoding="utf-8")
        mains = [node for node in parsed(file).body if isinstance(node, ast.FunctionDef) and node.name == "main"]
        if '__name__ == "__main__"' in source and not mains:
            own_endings += [] if "import main\n" in source else [f"{file.relative_to(ROOT)} has no function main"]
        for node in mains:
            if not any(re.match(r"(command_line\.)?command\(", ast.unparse(one)) for one in node.decorator_list):
                own_endings.append(f"{file.relative_to(ROOT)}:{node.lineno} is not decorated with @command")
    assert own_endings == []


def test_every_error_that_is_raised_on_purpose_has_the_common_base() -> None:
    roots = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
        for file in modules()
        if file.stem in ("errors", "__init__")
        for node in parsed(file).body
        if isinstance(node, ast.ClassDef) and [ast.unparse(base) for base in node.bases] == ["Exception"]
    ]
    assert [root.partition(" ")[2] for root in roots] == ["ImagestrataError"]


def literal(node: ast.expr) -> str:
    """The text of a message, with ``{}`` for what is put into it; empty if it is no text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.BinOp):
        return (literal(node.left) or "{}") + (literal(node.right) or "{}")
    return "".join(literal(one) or "{}" for one in node.values) if isinstance(node, ast.JoinedStr) else ""


# What was wanted, in one sentence; what was found; what to do. Text that is put in may have the first or the last part.
_MESSAGE = re.compile(
    r"(([Ww]anted |Cannot |\{\})((?![.!?] [A-Z]).)*([.?]|(?<=[)}])) )?Found: (?!.*Found: )\S.*|[Ww]anted .*\{\}",
    re.DOTALL,
)
_ONE_SENTENCE = ("Wanted a marker", "Wanted another name than ", "Wanted requests without the column ")


def test_messages_say_what_was_wanted_and_then_what_was_found() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno} {text!r}"
        for file in modules()
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args
        if (text := literal(node.exc.args[0])) and ("Found:" in text or re.match("[Ww]anted ", text))
        if not _MESSAGE.fullmatch(text) and not text.startswith(_ONE_SENTENCE)
    ]
    assert wrong == []


def imported(file: Path) -> Iterator[tuple[str, int]]:
    """The modules that a file imports by their whole names, with their lines."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((f"{node.module}.{name.name}", node.lineno) for name in node.names)
        elif isinstance(node, ast.Import):
            yield from ((name.name, node.lineno) for name in node.names)


def test_tests_import_no_tests_and_of_benchmarks_only_the_harness() -> None:
    borrowed = []
    for file in (ROOT / "tests").rglob("*.py"):
        for name, line in imported(file):
            package, room, *_ = [*name.split("."), ""]
            is_strange = package == "benchmarks" and room != "harness"
            if is_strange or any(part.startswith("test_") for part in name.split(".")):
                borrowed.append(f"{file.relative_to(ROOT)}:{line} imports {name}")
    assert not borrowed, "\n".join(["Move what several tests use to tests/support:", *borrowed])


def test_a_benchmark_imports_no_other_benchmark() -> None:
    strays = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for file in sorted((ROOT / "benchmarks").rglob("*.py"))
        for name, line in imported(file)
        if name.startswith("benchmarks.") and name.split(".")[1] not in {"harness", file.parent.name}
    ]
    assert not strays, "\n".join(["Move what several benchmarks use to benchmarks/harness:", *strays])


def test_benchmarks_are_folders_that_run_as_modules() -> None:
    inside = [path for path in (ROOT / "benchmarks").iterdir() if path.name != "__pycache__"]
    assert [path.name for path in inside if path.is_file()] == ["__init__.py"]
    rooms = [path for path in inside if path.is_dir() and path.name != "harness"]
    assert [path.name for path in rooms if not (path / "__main__.py").is_file()] == []


def test_tests_of_a_module_are_named_after_it_in_a_folder_that_mirrors_its_package() -> None:
    lost = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        tier, *folders = file.relative_to(ROOT / "tests").parts[:-1] or ("",)
        place, name = ROOT.joinpath(*folders), file.stem.removeprefix("test_")
        if tier in ("e2e", "gpu") or (tier, name) in {
            ("unit", "house"),
            ("unit", "docstrings"),
            ("unit", "documents"),
            ("unit", "notebooks"),
        }:
            continue
        inside = [one for one in place.iterdir() if one.suffix == ".py" or one.is_dir()] if place.is_dir() else []
        modules = {place.name, *(one.stem.lstrip("_") for one in inside)} if folders and inside else set()
        if tier not in ("unit", "integration") or not any(f"{name}_".startswith(f"{module}_") for module in modules):
            lost.append(str(file.relative_to(ROOT)))
    assert not lost, "\n".join(["Move to tests/TIER/PACKAGE/test_MODULE.py or test_MODULE_ASPECT.py:", *lost])


@pytest.mark.parametrize(
    ("nodeid", "fixtures", "advice"),
    [
        ("tests/unit/loader/order/test_permutation.py::test_x", ["tmp_path", "s3"], "move it to tests/integration"),
        ("tests/integration/loader/adapters/test_s3_folder.py::test_x", ["s3", "cassandra"], ""),
        ("tests/integration/loader/s3/test_client.py::test_x", ["spark"], "move it to tests/integration/etl/ or "),
        ("tests/integration/jobs/test_split.py::test_x", ["spark"], ""),
        ("tests/e2e/test_cluster.py::test_x", ["spark"], ""),
    ],
)
def test_a_test_in_the_wrong_place_learns_where_it_belongs(nodeid: str, fixtures: list[str], advice: str) -> None:
    assert advice in (found := misplaced(nodeid, fixtures))
    assert bool(advice) == bool(found)


# Package registries, and folders of a person's machine. Split, so that this file does not contain them.
_REGISTRIES = ("pypi" + ".org", "pythonhosted" + ".org", "repo1" + ".maven", "maven" + "2/", "repo.maven" + ".apache")
_MACHINE = re.compile("/" + r"(?:home|Users|root|work)/[\w.-]+/")


@pytest.mark.parametrize("what", ["registries", "machines"])
def test_no_committed_file_mentions(what: str) -> None:
    found = []
    for file in committed():
        data = file.read_bytes()
        if b"\0" in data:
            continue
        text = data.decode("utf-8", "replace")
        hits = [name for name in _REGISTRIES if name in text] if what == "registries" else _MACHINE.findall(text)
        found += [f"{file.relative_to(ROOT)}: {hit}" for hit in hits]
    assert found == []


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-zA-Z][\w.-]*):(?!=)", text, re.MULTILINE))
    phony = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())
    command = ["make", "-C", str(ROOT), "--no-print-directory", "help"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert {line.split()[0] for line in shown.splitlines() if line.startswith("  ")} == targets == phony
    assert {"demo", "train-demo", "test", "test-all", "check", "up", "down", "status", "clean-data"} <= targets
