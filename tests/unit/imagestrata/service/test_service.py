"""The command of the dataset service: arguments that it refuses before it serves."""

from pathlib import Path

import pytest

from imagestrata.service.commands import main


def test_a_publicly_reachable_address_needs_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--root", str(tmp_path / "root"), "--host", "0.0.0.0", "--port", "0"])
    assert ended.value.code == 2
    assert "token create" in capsys.readouterr().err
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    "arguments",
    [["serve", "--root", ""], ["serve", "--root", "x", "--port", "70000"], ["serve", "--root", "x", "--quota", "1x"]],
)
def test_invalid_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
