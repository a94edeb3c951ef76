"""Jobs and arguments that `run` refuses before it starts anything."""

import re
from pathlib import Path
from typing import Any

import pytest

from imagestrata.training_jobs.command import main
from tests.support.training_jobs import write_job


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        (["python", "none.py"], {}, "no none.py in"),
        (["none-such"], {}, "Wanted a command on this machine. Found: 'none-such'"),
        (["python", "main.py"], {"workingDir": "/none"}, "Wanted a local folder as workingDir. Found: /none"),
        ([], {}, "Wanted command, a list of at least one text"),
    ],
)
def test_a_job_that_cannot_run_is_reported_with_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], more: dict[str, Any], said: str
) -> None:
    (tmp_path / "main.py").touch()
    assert main([str(write_job(tmp_path, command, **more))]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["none.yaml"],
        [],
        ["--timeout", "0"],
        ["--url", "ftp://x"],
        ["--render", "--pull-image", "My Image"],
        ["--render", "--volume-claim=-x"],
        ["--render", "--token-secret", "A"],
        ["--render", "--storage-class", ""],
        ["--render", "--volume-size", "100XB"],
        ["--render", "--kind", "Job"],
    ],
)
def test_invalid_arguments_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    job = [] if arguments in ([], ["none.yaml"]) else [str(write_job(tmp_path, ["python", "main.py"]))]
    with pytest.raises(SystemExit) as ended:
        main([*job, *arguments])
    assert ended.value.code == 2


@pytest.mark.parametrize(("text", "quantity"), [("100Gi", "100Gi"), ("100G", "100G"), ("1.5GB", "1500000000")])
def test_the_size_of_a_volume_takes_units_of_kubernetes_and_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, quantity: str
) -> None:
    job = str(write_job(tmp_path, ["python", "main.py"]))
    assert main([job, "--render", "--url", "http://h:1", "--volume-size", text]) == 0
    assert re.search(rf"storage: ['\"]?{quantity}['\"]?$", capsys.readouterr().out, re.MULTILINE)


def test_a_password_in_the_address_is_refused_and_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = str(write_job(tmp_path, ["python", "main.py"]))
    for address in ("http://me:canary@host:80", "http://host/?token=canary", "http://me:can/ary@host"):
        with pytest.raises(SystemExit):
            main([job, "--render", "--url", address])
        told = capsys.readouterr()
        assert told.out == ""
        assert "canary" not in told.err
        assert "me:can" not in told.err
        assert "without a password" in told.err
