"""The README and the pages of `docs`: length, links, options, make targets, and how their blocks become scripts."""

import io
import re
import subprocess
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest

from imagestrata import cli
from jobs import cache_rows, delete, featurize, ingest, relabel, shard, split, verify
from tests.support import documents
from tests.support.documents import Page
from training import loop_read, train_options

ROOT = Path(__file__).resolve().parents[2]
PAGES = documents.pages()
# Options of other programs.
FOREIGN = {
    # spark-submit, gcloud
    *("--archives", "--conf", "--deploy-mode", "--driver-memory", "--executor-cores", "--executor-memory"),
    *(
        "--files",
        "--jars",
        "--master",
        "--num-executors",
        "--packages",
        "--properties",
        "--properties-file",
        "--py-files",
    ),
    "--total-executor-cores",
    # torchrun, curl, tar
    *("--nnodes", "--nproc_per_node", "--rdzv-backend", "--rdzv-endpoint", "--standalone"),
    *("--data-binary", "--hard-dereference"),
}


def page_names() -> list[str]:
    return [page.name for page in PAGES]


@pytest.fixture(scope="module")
def own_options() -> set[str]:
    """All options in the manual pages of our commands."""
    modules = (ingest, verify, split, shard, cache_rows, featurize, relabel, delete, train_options, loop_read)
    manuals = [manual(module.parse_args, ["--help"]) for module in modules]
    names = re.findall(r"^  ([a-z][a-z0-9-]+) ", manual(cli.main, ["--help"]), re.MULTILINE)
    manuals += [manual(cli.main, [name, "--help"]) for name in names]
    manuals += [manual(cli.main, ["token", name, "--help"]) for name in ("create", "list", "revoke")]
    listed = re.findall(r"^ +((?:-\w[^,\n]*, )?--[a-z].*)$", "\n".join(manuals), re.MULTILINE)
    # The examples import torch, so their parsers are read and not run.
    examples = [path.read_text(encoding="utf-8") for path in (ROOT / "training" / "examples").glob("*.py")]
    named = set(re.findall(r'add_argument\("(--[\w-]+)"', "\n".join(examples)))
    return named | {name for line in listed for name in re.findall(r"(?<![\w-])--[a-z][\w-]*", line.partition("  ")[0])}


def manual(command: Callable[[list[str]], object], argv: list[str]) -> str:
    """The output of a command for --help."""
    with redirect_stdout(io.StringIO()) as out, suppress(SystemExit):
        command(argv)
    return out.getvalue()


def test_the_readme_has_at_most_200_lines() -> None:
    assert len(documents.page("README.md").text.splitlines()) <= 200


@pytest.mark.parametrize("page", PAGES, ids=page_names())
def test_links_lead_to_files_and_headings_that_exist(page: Page) -> None:
    lost = []
    for link in documents.links(page):
        path, _, anchor = link.partition("#")
        target = (ROOT / page.name).parent / path if path else ROOT / page.name
        if not target.exists():
            lost.append(link)
        elif anchor and target.suffix == ".md":
            name = target.resolve().relative_to(ROOT).as_posix()
            if anchor not in documents.anchors(documents.page(name)):
                lost.append(link)
    assert not lost


@pytest.mark.parametrize("page", PAGES, ids=page_names())
def test_options_that_a_page_names_exist(page: Page, own_options: set[str]) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", page.text))
    assert not named - own_options - FOREIGN


def test_the_parsers_were_found(own_options: set[str]) -> None:
    assert {"--split-subdir", "--metadata-ofn", "--nodes", "--quota", "--train-index", "--scope"} <= own_options
    assert not {"--master", "--conf", "--nproc_per_node"} & own_options


def test_make_targets_that_pages_name_exist() -> None:
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = re.findall(r"^  ([\w.-]+)\s", listed, re.MULTILINE)
    for page in PAGES:
        code = [block.text for block in page.blocks] + re.findall(r"`([^`\n]+)`", page.prose)
        named = {name for text in code for name in re.findall(r"\bmake (?:-s )?([a-z][\w.-]*)\b", text)}
        assert not named - {*targets, "bench-NAME", "bench-"}, page.name


def test_modules_that_the_map_of_the_code_names_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z]\w*/)+(?:[a-z]\w*)?)(?:\.py|\.[A-Z]+)?`", text))
    for line in re.findall(r"^ {8}(\S.*?) {3}", text, re.MULTILINE):  # of a drawing: ROOM: MODULE ▶ MODULE
        room = ""
        for word in re.findall(r"\b[a-z][\w/]*\b:?", line.replace(" or ", " ")):
            room = word[:-1] if word.endswith(":") else room
            named.add(word[:-1] if word.endswith(":") else f"{room}/{word}")
    folders = [folder for folder in ROOT.iterdir() if folder.is_dir() and folder.name not in (".git", ".venv", "build")]
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    there = {f"/{path.relative_to(ROOT).with_suffix('')}/" for path in paths}
    lost = {one for one in named if not any(path.endswith(f"/{one.strip('/')}/") for path in there)}
    assert len(named) > 60
    assert not lost


EXAMPLE = Page(
    "docs/example.md",
    """# An example

```bash
make setup   # once
ls /data/photos
```

```output
photos of ... kinds
```

```text
not run
```

```python
print("9042")
```
""",
)


def test_a_page_becomes_a_script_of_the_blocks_that_are_run() -> None:
    made = documents.script(
        EXAMPLE,
        replaced={"/data/": "/tmp/", "9042": "5000", "make": "gmake"},
        left_out=["make setup"],
        python="/usr/bin/python",
    )
    assert made.splitlines()[2:] == [
        "echo",
        "echo '== docs/example.md, block 0, line 3'",
        "ls /tmp/photos",
        "echo",
        "echo '== docs/example.md, block 3, line 16'",
        "/usr/bin/python - <<'PYTHON_BLOCK'",
        'print("5000")',
        "PYTHON_BLOCK",
    ]


@pytest.mark.parametrize(
    ("printed", "wrong"), [("photos of 3 kinds", 0), ("\rphotos of 3 kinds", 0), ("photos of kinds", 1), ("", 1)]
)
def test_what_a_block_prints_is_compared_with_the_page(printed: str, wrong: int) -> None:
    output = f"== docs/example.md, block 0, line 3\nbefore\n{printed}\n== docs/example.md, block 3, line 16\n5000\n"
    assert len(documents.unlike(EXAMPLE, output)) == wrong


def test_anchors_are_those_of_github() -> None:
    page = Page("docs/example.md", "# `--split-subdir` and [labels](labels.md)\n\n```bash\n# a comment\n```\n")
    assert documents.anchors(page) == {"--split-subdir-and-labels"}
