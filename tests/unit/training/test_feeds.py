"""Sources of a training: they get its options."""

import urllib.request
from pathlib import Path

import pytest
import torch

import loader
from tests.support.exported_metrics import free_port, samples_in
from tests.support.pictures import texture
from tests.support.trees import plant
from training.feeds import open_sources
from training.ranks import Ranks
from training.train_options import parse_args


@pytest.mark.parametrize(("more", "rows"), [([], None), (["--on-missing", "skip"], 99)])
def test_missing_images_end_the_training_unless_they_are_to_be_skipped(
    more: list[str], rows: int | None, tmp_path: Path
) -> None:
    picture = texture(0)
    for side in ("train", "val"):
        names = [f"{label}/{side}{number}.png" for label in "ab" for number in range(50)]
        plant(tmp_path / side, dict.fromkeys(names, picture))
    options = parse_args([str(tmp_path / "train"), str(tmp_path / "val"), "--b", "5", *more])
    with open_sources(options, Ranks(0, 1, torch.device("cpu"))) as (_, val):
        (tmp_path / "val" / "a" / "val7.png").unlink()
        if rows is None:
            with pytest.raises(loader.MissingImageError):
                list(val.epoch(0))
        else:
            assert sum(map(len, val.epoch(0))) == rows


def test_each_process_of_a_machine_serves_the_metrics_of_its_training_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for side in ("train", "val"):
        plant(tmp_path / side, {f"{label}/{side}.png": texture(0) for label in "ab"})
    monkeypatch.setenv("LOCAL_RANK", "1")
    port = free_port()
    options = [str(tmp_path / "train"), str(tmp_path / "val"), "--b", "1", "--metrics-port", str(port - 1)]
    with open_sources(parse_args(options), Ranks(1, 2, torch.device("cpu"))) as (train, _):
        images = sum(map(len, train.epoch(0)))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    assert images == samples_in(text)["imagestrata_loader_images_total", ""] == 1
    assert 'rank="1"' in text
