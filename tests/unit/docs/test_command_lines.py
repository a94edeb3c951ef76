"""The reference has every command as its parser defines it."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docutils import nodes

from docs import command_lines
from imagestrata import cli

ROOT = Path(__file__).resolve().parents[3]


def test_every_command_has_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = {file.name for file in (ROOT / "jobs").glob("*.py") if "\ndef main(" in file.read_text(encoding="utf-8")}
    cli.main(["--help"])
    commands = {f"imagestrata {name}" for name in re.findall(r"^  ([a-z][a-z0-9-]*) ", capsys.readouterr().out, re.M)}
    assert set(command_lines.COMMANDS) == jobs | {"train.py", "loop_read.py"} | commands
    page = (ROOT / "docs/reference/command-lines.md").read_text(encoding="utf-8")
    assert [name for name in command_lines.COMMANDS if f"```{{command-line}} {name}\n" not in page] == []


@pytest.mark.parametrize("command", sorted(command_lines.COMMANDS))
def test_the_parser_of_a_command_is_its_own(command: str) -> None:
    parser = command_lines.parser_of(command)
    assert parser.prog.endswith(command)
    assert not any(isinstance(one, argparse._SubParsersAction) for one in parser._actions)


def test_a_manual_becomes_paragraphs_commands_and_tables() -> None:
    examples = "examples:\n  run a\n\n  run --b\n"
    rows = ("one thing   of two", "            lines", "two         more:", "              a", "              b")
    table = "\n  ".join(["With --b, told:", *rows])
    text = f"Do it.\n\n{examples}\n{table}"
    found = list(command_lines._manual(text))
    assert [type(node) for node in found] == [
        nodes.paragraph,
        nodes.paragraph,
        nodes.literal_block,
        nodes.paragraph,
        nodes.definition_list,
    ]
    assert found[2].astext() == "run a\n\nrun --b"
    assert [node.astext() for node in found[3].findall(nodes.literal)] == ["--b"]
    assert [node.astext() for node in found[4].findall(nodes.term)] == ["one thing", "two"]
    assert [node.astext() for node in found[4].findall(nodes.definition)] == ["of two lines", "more:\n  a\n  b"]


def test_importing_the_directive_starts_no_jvm_and_prints_nothing() -> None:
    command = [sys.executable, "-c", "import docs.command_lines as c; c.parser_of('ingest.py')"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout + done.stderr == ""
