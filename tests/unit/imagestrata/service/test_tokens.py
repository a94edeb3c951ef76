"""Tokens from a file, as a container mounts a secret."""

from pathlib import Path

import pytest

from formats.stores.storage import Storage
from imagestrata.service.commands import main
from imagestrata.service.tokens import Tokens
from schemas.errors import SchemaError

TOKEN = "0123456789abcdef" * 4


def create(root: Path, text: str, *, name: str = "admin", scope: str = "write") -> int:
    (file := root.parent / "token").write_text(text)
    told = ["--name", name, "--scope", scope, "--token-file", str(file)]
    return main(["token", "create", "--root", str(root), *told])


def test_a_token_from_a_file_opens_the_service_and_is_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create(tmp_path / "root", f"{TOKEN}\n") == 0
    tokens = Tokens(Storage(tmp_path / "root"))
    found = Tokens.find_in(tokens.all(), TOKEN)
    assert found is not None
    assert (found.name, found.scope) == ("admin", "write")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert TOKEN not in (tmp_path / "root" / "tokens.json").read_text()


def test_the_same_token_again_changes_nothing_and_another_of_its_name_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create(tmp_path / "root", TOKEN) == 0
    before = (tmp_path / "root" / "tokens.json").read_bytes()
    assert create(tmp_path / "root", TOKEN) == 0
    for text, scope in ((TOKEN[::-1], "write"), (TOKEN, "read")):
        assert create(tmp_path / "root", text, scope=scope) == 1
        assert "Revoke that one first" in capsys.readouterr().err
    assert (tmp_path / "root" / "tokens.json").read_bytes() == before


@pytest.mark.parametrize("text", ["", "secret", "a" * 31, f"{TOKEN[:20]} {TOKEN[:20]}", "\u00e9" * 40])
def test_a_token_that_can_be_guessed_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SchemaError, match="at least 32"):
        Tokens(Storage(tmp_path)).create("x", "read", text=text)


@pytest.mark.parametrize(
    "words", [["list", "--root", "none"], ["revoke", "--root", "none", "--name", "x"],
              ["list", "--root", ".", "--token-file", "x"]],
)  # fmt: skip
def test_a_missing_root_and_a_token_file_are_only_for_create(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["token", *words])
    assert ended.value.code == 2
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b'{"format": 1, "tokens": [{"name": "x", "scope": "read", "sha256": 5, "created": ""}]}',
    ],
)
@pytest.mark.parametrize("options", [[], ["--insecure"], ["--host", "0.0.0.0"]])
def test_a_service_whose_tokens_cannot_be_read_does_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damaged: bytes, options: list[str]
) -> None:
    (tmp_path / "tokens.json").write_bytes(damaged)
    assert main(["serve", "--root", str(tmp_path), "--port", "0", *options]) == 1
    told = capsys.readouterr().err
    assert f"{tmp_path}/tokens.json" in told
    assert told.count("\n") == 1
