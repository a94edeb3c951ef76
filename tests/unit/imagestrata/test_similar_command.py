"""The command `imagestrata similar`: arguments that are wrong."""

import pytest

from imagestrata import similar_command

ID = "0f8a4d0e-0000-5000-8000-000000000000"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["train/3/0003.png", "-m", "ks.metadata", "--view", "v"], "wanted the id of an image as a UUID. Found: train"),
        ([ID, "-m", "metadata", "--view", "v"], "Wanted a table as keyspace.table"),
        ([ID, "-m", "ks.metadata", "--view", "v@2"], "Wanted a feature view as NAME or NAME@v1. Found: 'v@2'"),
        ([ID, "-m", "ks.metadata", "--view", "v", "--count", "501"], "wanted 1 to 500 for --count. Found: 501"),
    ],
)
def test_wrong_arguments_are_refused(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        similar_command.main(argv)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
