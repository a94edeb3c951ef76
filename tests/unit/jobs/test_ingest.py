"""The command line of ingest: bad arguments are refused before anything starts."""

from pathlib import Path

import pytest

from jobs import ingest as job


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "train" / "a").mkdir(parents=True)
    (tmp_path / "file").touch()
    return tmp_path


ARGUMENTS = ["--data-table", "ks.data", "--metadata-table", "ks.metadata"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["gone", *ARGUMENTS],
        [".", *ARGUMENTS, "--split-subdir=val"],
        [".", "--data-table", "ks", "--metadata-table", "ks.metadata"],
        [".", "--data-table", 'ks.data"; DROP KEYSPACE ks', "--metadata-table", "ks.metadata"],
        [".", *ARGUMENTS, "--id-col", 'id" uuid'],
        [".", *ARGUMENTS, "--ingest-id", "x"],
        [".", *ARGUMENTS, "--no-create", "--replication", "3"],
        [".", *ARGUMENTS, "--nonsense"],
    ],
)
def test_bad_arguments_exit_with_code_2(
    arguments: list[str], tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tree)
    with pytest.raises(SystemExit) as caught:
        job.main(arguments)
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_bad_arguments_start_no_jvm(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Java cannot be found, so if the job looked for it, the exit code would differ."""
    for name in ("PATH", "JAVA_HOME"):
        monkeypatch.setenv(name, "/nowhere")
    with pytest.raises(SystemExit) as caught:
        job.main([str(tree), "--data-table", "ks.data", "--metadata-table", "ks.Metadata"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "fold" in said
    assert "'ks.Metadata'" in said
