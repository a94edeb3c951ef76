"""The command `imagestrata registry` on a real keyspace."""

import json

import pytest

from etl.cassandra import registry
from etl.cassandra.control import Control
from etl.features import builtin
from etl.features.views import register_view
from imagestrata.cli import main
from schemas.tables import Replication, create_keyspace


def test_what_is_registered_is_listed_and_described(
    control: Control, keyspace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["-k", keyspace, "--host", ",".join(control.cluster.hosts), "--port", str(control.cluster.port)]

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["registry", *arguments, *where])
        out, err = capsys.readouterr()
        return code, out, err

    control.define(create_keyspace(keyspace, Replication.parse("1")))
    assert run("list") == (0, "", "")
    registry.create(control, keyspace=keyspace)
    for name in ("sharpness", "phash"):
        register_view(control, builtin.view_of(name), keyspace=keyspace)
    assert run("list")[1] == "feature view\tphash@v1\nfeature view\tsharpness@v1\n"
    run("describe", "phash", "--owner", "a@example.org", "--description", "look-alikes")
    run("tag", "phash@v1", "team=vision", "use=groups")
    code, out, _ = run("tag", "phash", "use=", "--json")
    found = json.loads(out)
    assert (code, found["owner"], found["description"]) == (0, "a@example.org", "look-alikes")
    assert (found["tags"], found["definition"]["fields"]) == ({"team": "vision"}, {"phash": "bigint"})
    assert run("list")[1].splitlines()[0] == "feature view\tphash@v1\ta@example.org\tlook-alikes"
    assert "source" in run("show", "sharpness")[1]
    code, _, err = run("show", "sharpness@v2")
    assert code == 1
    assert f"`imagestrata registry list -k {keyspace}` shows the names." in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show"], "wanted NAME with show, describe and tag"),
        (["list", "x"], "not with list. Found: x"),
        (["describe", "x"], "wanted --owner or --description"),
        (["tag", "x", "team"], "wanted tags as NAME=VALUE. Found: team"),
        (["show", "X"], "Wanted the name of a feature view"),
    ],
)
def test_wrong_arguments_exit_with_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["registry", *arguments, "-k", "ks"])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
