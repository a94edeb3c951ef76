"""`imagestrata replay` and `imagestrata seen`: which images a training has seen, from files of states."""

import json
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import torch
from PIL import Image

import loader
from imagestrata.cli import main
from tests.support.row_sources import RowSource
from tests.support.split_folders import image_ids, write_split_folder
from tests.support.trees import picture, plant


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return plant(tmp_path / "tree", {f"{number % 2}/{number}.png": picture(number) for number in range(12)})


@pytest.fixture
def saved(folder: Path, tmp_path: Path) -> Callable[[int], dict[str, Any]]:
    """Saves the state after so many batches of four images, as ``N.json`` and, as Lightning has it, ``N.pt``."""

    def save(batches: int) -> dict[str, Any]:
        with loader.FolderSource(loader.open_folder(folder), batch_size=4, rank=0, world_size=1) as source:
            batch = [*islice(epoch := source.epoch(0), batches)][-1]
            state = source.state_dict()
            del epoch
        (tmp_path / f"{batches}.json").write_text(json.dumps(state))
        torch.save({"state_dict": {"w": torch.zeros(2)}, "DataModule": {"train": state}}, tmp_path / f"{batches}.pt")
        return {"ids": [str(UUID(bytes=one.tobytes())) for one in batch.ids], "positions": batch.positions.tolist()}

    return save


@pytest.mark.parametrize("name", ["2.json", "2.pt"])
def test_the_images_of_a_step_are_listed_and_drawn(
    folder: Path, saved: Callable[[int], dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    wanted, usual = saved(2), [str(tmp_path / name), "--folder", str(folder), "--epoch", "0"]
    assert main(["replay", *usual, "--steps", "1", "--sheet", str(tmp_path / "sheet.png")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["epoch", "step", "rank", "image", "class"]
    assert [line.split()[:4] for line in lines[1:]] == [["0", "1", "0", one] for one in wanted["ids"]]
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size[0] > 100
    assert main(["replay", *usual, "--steps", "0:9", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["batches"]
    assert [one["step"] for one in found] == [0, 1]
    assert found[1] == {"run": 0, "epoch": 0, "step": 1, "rank": 0, "is_exact": True, **wanted}


def test_the_crops_of_a_step_are_drawn_and_need_a_size(
    folder: Path, saved: Callable[[int], dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(2)
    state = {"train": json.loads((tmp_path / "2.json").read_text())}
    for name, options in (("train", {"size": 32}), ("own", {"size": 32, "transforms": "mine:graph"})):
        torch.save(
            state | {"options": {"data": [str(folder)], "class_level": "top", "dataset": "", **options}},
            tmp_path / f"{name}.pt",
        )
    sheet = tmp_path / "sheet.png"

    def drawn(name: str, *crops: str) -> bytes:
        steps = ["--epoch", "0", "--steps", "1", "--sheet", str(sheet)]
        assert main(["replay", str(tmp_path / name), "--folder", str(folder), *steps, *crops]) == 0
        return sheet.read_bytes()

    assert drawn("train.pt", "--crops") == drawn("2.json", "--crops", "32") != drawn("train.pt")
    for name, found in (("2.json", "does not name the size"), ("own.pt", "--transforms mine:graph")):
        usual = ["replay", str(tmp_path / name), "--folder", str(folder), "--epoch", "0", "--steps", "1"]
        assert main([*usual, "--sheet", str(sheet), "--crops"]) == 1
        assert found in capsys.readouterr().err
        with pytest.raises(SystemExit, match="2"):
            main([*usual, "--crops"])
        assert "wanted --sheet FILE with --crops" in capsys.readouterr().err
    for size in ("-5", "0", "x"):
        with pytest.raises(SystemExit, match="2"):
            main([*usual, "--sheet", str(sheet), f"--crops={size}"])
        assert "wanted a size of at least 1 pixel" in capsys.readouterr().err


def test_what_prevents_a_sheet_is_said(
    folder: Path, saved: Callable[[int], dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(2)
    command = ["replay", str(tmp_path / "2.json"), "--folder", str(folder), "--epoch", "0", "--steps", "1", "--sheet"]
    for options, found in (
        ([str(tmp_path / "s.png"), "--host", "x"], "error: Wanted no hosts: the images are read from"),
        ([str(tmp_path / "nowhere" / "s.png")], "Found: No such file or directory\n"),
        ([str(tmp_path / "s.none")], "Name it *.png."),
    ):
        assert main([*command, *options]) == 1
        assert found in capsys.readouterr().err


def test_checkpoints_of_other_orders_are_of_other_trainings(
    folder: Path, saved: Callable[[int], dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = saved(2)["ids"][0]
    with loader.FolderSource(
        loader.open_folder(folder), batch_size=4, rank=0, world_size=1, sampling="balanced"
    ) as source:
        (tmp_path / "other.json").write_text(json.dumps(source.state_dict()))
    assert main(["seen", image, str(tmp_path / "2.json"), str(tmp_path / "other.json"), "--folder", str(folder)]) == 1
    assert "Wanted checkpoints of one training" in capsys.readouterr().err


def test_the_split_of_a_checkpoint_is_the_one_of_its_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMAGESTRATA_CACHE", str(tmp_path / "cache"))
    folder = write_split_folder(tmp_path / "split", [(image_ids(4), [0] * 4), (image_ids(4, first=9), [1] * 4)])
    split = loader.open_split(folder, index=1)
    rows = {UUID(bytes=one.tobytes()): b"an image" for one in split.ids}
    with RowSource(split, rows=rows, batch_size=2) as source:
        batch = next(epoch := source.epoch(0))
        state = source.state_dict()
        del epoch
    path = str(tmp_path / "train.pt")
    torch.save({"train": state, "options": {"split": str(folder), "train_index": 1}}, path)
    step = ["replay", path, "--epoch", "0", "--steps", "0"]
    assert main(step) == main([*step, "--split", str(folder)]) == main([*step, "--index", "1"]) == 0
    assert capsys.readouterr().out.count(str(UUID(bytes=batch.ids[0].tobytes()))) == 3
    assert main([*step, "--index", "0"]) == 1
    assert "Wanted a state of this split" in capsys.readouterr().err


def test_the_last_checkpoint_without_an_image_is_named(
    folder: Path, saved: Callable[[int], dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [saved(batches)["ids"][0] for batches in (1, 2, 3)]
    paths = [str(tmp_path / name) for name in ("3.json", "1.json", "2.json")]  # in any order
    assert main(["seen", ids[1], *paths, "--folder", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "epoch 0  step 1  rank 0",
        f"{tmp_path}/3.json: image {ids[1]} was seen once",
        f"the last checkpoint that had certainly not seen it: {tmp_path}/1.json",
    ]
    assert main(["seen", ids[0], *paths, "--folder", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["last_without"], [len(one["seen"]) for one in found["checkpoints"]]) == (None, [1, 1, 1])
    old = {name: value for name, value in json.loads((tmp_path / "3.json").read_text()).items() if name != "past"}
    (tmp_path / "old.json").write_text(json.dumps(old))  # as of an earlier version
    assert main(["seen", ids[1], *paths[1:], str(tmp_path / "old.json"), "--folder", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"the last checkpoint that had certainly not seen it: {tmp_path}/1.json",
        f"not known of {tmp_path}/old.json: run 0: the batches before step 0 of epoch 1",
    ]
    assert main(["seen", ids[2], paths[1], "--folder", str(folder)]) == 0
    assert "was seen at no step" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "code", "found"), [
    (["replay", "2.json", "--epoch", "0", "--steps", "5"], 1, "Wanted --split, .*Found: none, and .*2.json does not"),
    (["replay", "2.json", "--epoch", "0", "--steps", "2:2"], 2, "wanted A:B with A below B"),
    (["replay", "2.json", "--epoch", "0", "--steps", "1:"], 2, "wanted A:B with A below B"),
    (["seen", "0" * 36, "2.json", "--folder", "tree"], 1, "Wanted the id of an image, a UUID"),
    (["replay", "2.json", "--folder", "tree", "--epoch", "7", "--steps", "5"], 1, "no such step before 2.json was"),
    (["replay", "2.json", "--folder", "tree", "--split", "s", "--epoch", "0", "--steps", "5"], 2, "Found: several"),
    (["replay", "no.pt", "--folder", "tree", "--epoch", "0", "--steps", "0"], 1, "in no.pt. Found: No such file"),
    (["replay", "text", "--folder", "tree", "--epoch", "0", "--steps", "0"], 1, "in text. Found: another file"),
    (["replay", "empty.json", "--folder", "tree", "--epoch", "0", "--steps", "0"], 1, "Found: none in an empty file"),
    (["seen", "no-id", "2.json", "--folder", "tree"], 1, "Wanted the id of an image, a UUID. Found: 'no-id'"),
    (["seen", "1", "worker.json", "--folder", "tree"], 1, "one of torchdata's StatefulDataLoader"),
    (["seen", "1", "2.json", "other.json", "--folder", "tree"], 1, "other.json, of another one than 2.json"),
    (["seen", "12", "2.json", "--folder", "tree"], 1, "Wanted a position from 0 to 11"),
])  # fmt: skip
def test_what_cannot_be_answered_is_refused(
    folder: Path, saved: Callable[[int], dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, found: str,
) -> None:  # fmt: skip
    saved(2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("no checkpoint")
    other = json.loads((tmp_path / "2.json").read_text()) | {"seed": 7, "past": []}
    (tmp_path / "other.json").write_text(json.dumps(other))
    (tmp_path / "empty.json").write_text("{}")
    (tmp_path / "worker.json").write_text('{"dataset_state": {"worker": 0, "workers": 1, "begin": {}}}')
    try:
        given: object = main(arguments)
    except SystemExit as ended:  # of argparse
        given = ended.code
    assert given == code
    assert re.search(found, capsys.readouterr().err)
