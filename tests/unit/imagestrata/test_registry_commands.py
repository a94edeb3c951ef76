"""The command lines of `imagestrata registry`, `lineage`, `similar` and `migrate` that are refused."""

import pytest

from imagestrata.cli import main

ID = "7c743c2e-685c-55f2-9f8b-e10df2a8a6a6"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["registry", "show", "-k", "ks"], "wanted NAME with show. Found: none"),
        (["registry", "list", "x", "-k", "ks"], "wanted a kind: feature view"),
        (["registry", "describe", "x", "-k", "ks"], "wanted --owner or --description"),
        (["registry", "tag", "x", "team", "-k", "ks"], "wanted NAME with tag. Found: x team"),
        (["registry", "tag", "x", "-k", "ks"], "wanted tags as NAME=VALUE. Found: none"),
        (["registry", "show", "x", "--prune", "-k", "ks"], "wanted --prune with apply. Found: show"),
        (["lineage", ID, "-k", "ks"], "wanted -m KS.TABLE"),
        (["lineage", "x", "--picture", "x.png", "-k", "ks"], "wanted a picture in a file *.svg"),
        (["lineage", "x", "--picture", "x.svg", "--since-then"], "wanted a checkpoint alone with --since-then"),
        (["lineage", ID, "-m", "ks.t", "--since-then"], "wanted a checkpoint alone with --since-then. Found: an image"),
        (["migrate"], "wanted -m KS.TABLE, or -k KEYSPACE for all of its tables. Found: neither"),
        (["migrate", "-m", "metadata"], "Wanted a table as keyspace.table"),
        (["similar", "3.png", "-m", "ks.t", "--view", "v"], "wanted the id of an image as a UUID. Found: 3.png"),
        (["similar", ID, "-m", "metadata", "--view", "v"], "Wanted a table as keyspace.table"),
        (["similar", ID, "-m", "ks.t", "--view", "v@2"], "Wanted a feature view as NAME or NAME@v1. Found: 'v@2'"),
        (["similar", ID, "-m", "ks.t", "--view", "v", "--count", "501"], "wanted 1 to 500 for --count. Found: 501"),
    ],
)
def test_wrong_arguments_exit_with_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
