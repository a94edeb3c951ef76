"""The command lines of `imagestrata registry` and `imagestrata lineage` that are refused."""

import pytest

from imagestrata.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["registry", "show"], "wanted NAME with show. Found: none"),
        (["registry", "list", "x"], "wanted a kind: feature view"),
        (["registry", "describe", "x"], "wanted --owner or --description"),
        (["registry", "tag", "x", "team"], "wanted NAME with tag. Found: x team"),
        (["registry", "tag", "x"], "wanted tags as NAME=VALUE. Found: none"),
        (["registry", "show", "x", "--prune"], "wanted --prune with apply. Found: show"),
        (["lineage", "7c743c2e-685c-55f2-9f8b-e10df2a8a6a6"], "wanted -m KS.TABLE"),
        (["lineage", "x", "--picture", "x.png"], "wanted a picture in a file *.svg"),
    ],
)
def test_wrong_arguments_exit_with_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "-k", "ks"])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
