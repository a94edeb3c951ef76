"""The directive `command-line`: the help of a command as a page, from its parser."""

import argparse
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn
from unittest.mock import patch

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from imagestrata import cli
from jobs import cache_rows, delete, featurize, ingest, relabel, shard, split, verify
from training import loop_read, train

_CLI = (
    *("demo", "doctor", "job", "registry", "lineage", "similar", "migrate", "up", "down", "status", "clean-data"),
    *("s3-up", "s3-down", "s3-status", "s3-clean-data", "s3-build"),
    *("plan", "replay", "seen", "serve", "token", "list", "push", "pull", "restore", "run", "chromium"),
)
_SCRIPTS = (ingest, verify, split, shard, cache_rows, featurize, relabel, delete, train, loop_read)
COMMANDS: dict[str, Callable[[], object]] = {
    **{f"{script.__name__.rpartition('.')[2]}.py": partial(script.main, []) for script in _SCRIPTS},
    **{f"imagestrata {name}": partial(cli.main, [name]) for name in _CLI},
}
"""Each command, called without arguments."""


class _ParserMade(Exception):
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def _stop(parser: argparse.ArgumentParser, *args: Any, **options: Any) -> NoReturn:
    raise _ParserMade(parser)


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of a command of `COMMANDS`: the command is called, and stopped where it begins to parse."""
    with patch.object(argparse.ArgumentParser, "parse_known_args", _stop):
        try:
            COMMANDS[command]()
        except _ParserMade as made:
            return _subparsers(made.parser).get(command.rpartition(" ")[2], made.parser)
    raise RuntimeError(f"Wanted a parser of {command}. Found: none.")


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next((dict(one.choices) for one in parser._actions if isinstance(one, argparse._SubParsersAction)), {})


class CommandLine(SphinxDirective):
    """The manual of a command, and its options by group."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        command = self.arguments[0]
        parser = parser_of(command)
        self.env.note_dependency(__file__)
        found = list(_manual(parser.description or ""))
        for group in parser._action_groups:
            options = [one for one in group._group_actions if one.help != argparse.SUPPRESS and one.dest != "help"]
            if options:
                # argparse capitalises nothing; its own two groups are called "positional arguments" and "options".
                found += [nodes.rubric("", (group.title or "").capitalize())]
                found += [_definitions((self._option(command, one), _help(one, parser)) for one in options)]
        return [*found, *_manual(parser.epilog or "")]

    def _option(self, command: str, action: argparse.Action) -> nodes.term:
        value = _value(action)
        texts = [f"{name} {value}".strip() for name in action.option_strings] or [value]
        name = nodes.make_id(f"{command} {(action.option_strings or [value])[-1]}")
        term = nodes.term("", "", ids=[name])
        for place, text in enumerate(texts):
            term += [nodes.Text(", ")] * bool(place) + [nodes.literal("", text)]
        return term


def _value(action: argparse.Action) -> str:
    """What is typed for an option, or in its place."""
    if action.nargs == 0:
        return ""
    if action.choices is not None and action.metavar is None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    name = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    text = " ".join(name) if isinstance(name, tuple) else name
    return f"{text} ..." if action.nargs in ("+", "*") else text


def _help(action: argparse.Action, parser: argparse.ArgumentParser) -> list[nodes.Node]:
    return [_paragraph((action.help or "") % {**vars(action), "prog": parser.prog})]


_TWO_COLUMNS = re.compile(r"(\S+(?: \S+)*) {2,}(\S.*)")
_OPTION = re.compile(r"((?<![\w-])--[a-z](?:[a-z-]*[a-z])?)")


def _paragraph(text: str) -> nodes.paragraph:
    """A paragraph in which options are code."""
    parts = enumerate(_OPTION.split(text))
    return nodes.paragraph(
        "",
        "",
        *(nodes.literal("", part, classes=["option"]) if place % 2 else nodes.Text(part) for place, part in parts),
    )


def _manual(text: str) -> Iterator[nodes.Node]:
    """The text of a manual: paragraphs, indented commands, and indented tables of two columns."""
    for is_indented, group in itertools.groupby(_filled(text.splitlines()), key=lambda line: line.startswith(" ")):
        lines = textwrap.dedent("\n".join(group)).strip("\n").splitlines()
        if not is_indented:
            yield from (_paragraph(one.replace("\n", " ")) for one in re.split(r"\n{2,}", "\n".join(lines)) if one)
        elif all(_TWO_COLUMNS.fullmatch(line) for line in lines if line.strip() and not line.startswith(" ")):
            yield _definitions(_rows(lines))
        else:
            yield nodes.literal_block("", "\n".join(lines), language="none")


def _filled(lines: list[str]) -> Iterator[str]:
    """The lines, with a blank for each empty one between indented ones, so that these stay together."""
    for place, line in enumerate(lines):
        following = next((one for one in lines[place:] if one.strip()), "")
        preceding = next((one for one in reversed(lines[:place]) if one.strip()), "")
        yield " " if not line.strip() and preceding.startswith(" ") and following.startswith(" ") else line


def _rows(lines: list[str]) -> Iterator[tuple[nodes.term, list[nodes.Node]]]:
    rows: list[tuple[str, int, list[str]]] = []
    for line in filter(str.strip, lines):
        if found := _TWO_COLUMNS.fullmatch(line):
            rows.append((found[1], found.start(2), [found[2]]))
        else:
            rows[-1][2].append(line)
    for name, column, (first, *others) in rows:
        deepest = max((len(line) - len(line.lstrip()) for line in others), default=0)
        if deepest > column:  # a list of its own
            text: nodes.Node = nodes.literal_block(
                "", "\n".join([first, *(line[column:] for line in others)]), language="none"
            )
        else:
            text = _paragraph(" ".join([first, *map(str.strip, others)]))
        yield nodes.term("", "", nodes.literal("", name)), [text]


def _definitions(rows: "Iterator[tuple[nodes.term, list[nodes.Node]]]") -> nodes.definition_list:
    items = [nodes.definition_list_item("", term, nodes.definition("", *text)) for term, text in rows]
    return nodes.definition_list("", *items, classes=["options"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("command-line", CommandLine)
    return {"parallel_read_safe": True}
