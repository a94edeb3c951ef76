"""The loader's batches in Lightning, whose checkpoints include the loader's state."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

import loader
from imagestrata.devstack.servers.cassandra import Cassandra
from loader.lightning import ClassificationData
from tests.support.pictures import picture, write_table
from tests.support.services import fresh_name
from tests.support.small_models import tiny
from tests.support.split_folders import write_split_folder

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "training" / "examples" / "lightning_classifier.py"
CLASSES = 4


class Model(lightning.LightningModule):
    """A small network that records which images it sees, by epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.seen, self.known = tiny(CLASSES), {}, []

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> torch.Tensor:
        given = self.trainer.train_dataloader.given
        self.seen.setdefault(self.trainer.current_epoch, []).extend(one.tobytes() for one in given.ids)
        return torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> None:
        if not self.trainer.sanity_checking:
            self.known += (self.network(batch[0]).argmax(1) == batch[1]).tolist()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class End(Callback):
    """Ends the process at one step, like a crash."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: object) -> None:
        if trainer.global_step == self.at:
            raise InterruptedError


@pytest.fixture(scope="module")
def split(cassandra: Cassandra, place: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, table = tmp_path_factory.mktemp("lightning"), f"{fresh_name('lightning')}.data"
    labels = {UUID(int=number): number % CLASSES for number in range(72)}
    pictures = {one: picture(3 * label) for one, label in labels.items()}
    write_table(table, pictures, hosts=cassandra.hosts, port=cassandra.port)
    ids = list(labels)
    sides = [(part, [labels[one] for one in part]) for part in (ids[:54], ids[54:])]
    names = {label: f"shade {label}" for label in range(CLASSES)}
    return write_split_folder(root / "split", sides, data_table=table, class_names=names)


def fit(
    split: Path, cassandra: Cassandra, folder: Path, *, callbacks: Sequence[Callback] = (), resume: str | None = None
) -> Model:
    """Three epochs of six batches; the checkpoint `last.ckpt` is written every fourth batch. Returns the model."""
    make = partial(loader.CassandraSource, hosts=cassandra.hosts, port=cassandra.port)
    sides = [partial(make, loader.open_split(split, index=index)) for index in (0, 1)]
    data = ClassificationData(*sides, batch_size=9, size=16, num_threads=2)
    torch.manual_seed(1)
    saved = ModelCheckpoint(folder, save_top_k=0, save_last=True, every_n_train_steps=4)
    usual = {"accelerator": "cpu", "devices": 1, "logger": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=3, callbacks=[saved, *callbacks], enable_model_summary=False, **usual)
    model = Model()
    try:
        trainer.fit(model, data, ckpt_path=resume, weights_only=True)
    except InterruptedError:
        data.teardown("fit")
    return model


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("ended_at", "first"), [(11, 2), (13, 0)])
def test_a_checkpoint_resumes_at_the_next_image(
    split: Path, cassandra: Cassandra, tmp_path: Path, ended_at: int, first: int
) -> None:
    undisturbed = fit(split, cassandra, tmp_path / "undisturbed")
    assert {epoch: len(seen) for epoch, seen in undisturbed.seen.items()} == {0: 54, 1: 54, 2: 54}
    assert [len({*seen}) for seen in undisturbed.seen.values()] == [54] * 3
    assert undisturbed.seen[0] != undisturbed.seen[1]
    assert len(undisturbed.known) == 3 * 18

    before = fit(split, cassandra, tmp_path / "ended", callbacks=[End(ended_at)])
    assert [len(seen) for seen in before.seen.values()] == ([54, 45] if first else [54, 54, 9])
    after = fit(split, cassandra, tmp_path / "ended", resume=str(tmp_path / "ended" / "last.ckpt"))
    epoch = 1 if first else 2
    assert after.seen == {
        epoch: undisturbed.seen[epoch][first * 9 :],
        **{n: undisturbed.seen[n] for n in range(epoch + 1, 3)},
    }


class OneCycle(Model):
    """A model that asks for the loader before the checkpoint is restored."""

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = super().configure_optimizers()
        steps = self.trainer.estimated_stepping_batches
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, steps)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("folders")
    for number in range(54):
        file = root / f"class {number % CLASSES}" / f"{number}.png"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(picture(3 * (number % CLASSES)))
    return root


def seen_in(
    folders: Path,
    out: Path,
    *,
    ended_at: int = 0,
    resume: Path | None = None,
    data: type = ClassificationData,
    **more: Any,
) -> dict[int, list[bytes]]:
    """The ids of three epochs of six batches, or of what is left, of a training with OneCycleLR."""
    sides = [partial(loader.FolderSource, loader.open_folder(folders, class_level="top"))] * 2
    batches = data(*sides, batch_size=9, size=16, num_threads=1)
    usual = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    saved = ModelCheckpoint(out, save_top_k=0, save_last=True, every_n_train_steps=1)
    trainer = lightning.Trainer(max_epochs=3, callbacks=[saved, End(ended_at)], **usual, **more)
    model = OneCycle()
    try:
        trainer.fit(model, batches, ckpt_path=resume, weights_only=True)
    except InterruptedError:
        batches.teardown("fit")
    return model.seen


class Renamed(ClassificationData):
    """Lightning keeps the state of a DataModule by the name of its class."""


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("ended_at", "more"),
    [
        (8, {"reload_dataloaders_every_n_epochs": 1}),
        (7, {"num_sanity_val_steps": 2}),  # the checkpoint of the step before is at the end of an epoch
        (5, {"limit_train_batches": 4}),
    ],
)
def test_a_loader_that_is_made_before_the_checkpoint_is_restored_resumes(
    folders: Path, tmp_path: Path, ended_at: int, more: dict[str, Any]
) -> None:
    undisturbed = seen_in(folders, tmp_path / "undisturbed", **more)
    assert len({tuple(seen) for seen in undisturbed.values()}) == 3
    before = seen_in(folders, tmp_path, ended_at=ended_at, **more)
    after = seen_in(folders, tmp_path, resume=tmp_path / "last.ckpt", **more)
    step = 9 * (ended_at - 1)  # the process ends before the checkpoint of its last step is written
    whole = [one for epoch in sorted(undisturbed) for one in undisturbed[epoch]]
    assert [one for epoch in sorted(before) for one in before[epoch]][:step] == whole[:step]
    assert [one for epoch in sorted(after) for one in after[epoch]] == whole[step:]


def test_a_position_that_was_saved_and_not_loaded_is_an_error(folders: Path, tmp_path: Path) -> None:
    seen_in(folders, tmp_path, ended_at=8)
    with pytest.raises(loader.StateError, match=r"training data in .*last\.ckpt\. Found: none was loaded"):
        seen_in(folders, tmp_path, resume=tmp_path / "last.ckpt", data=Renamed)


def test_lightning_keeps_the_state_that_the_loader_gives(split: Path, cassandra: Cassandra, tmp_path: Path) -> None:
    fit(split, cassandra, tmp_path, callbacks=[End(9)])
    states = torch.load(tmp_path / "last.ckpt", weights_only=True)["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    assert [(state["epoch"], state["start"]) for state in states] == [(1, 2 * 9)]


def test_the_example_learns_and_resumes(split: Path, cassandra: Cassandra, tmp_path: Path) -> None:
    from training.examples import lightning_classifier

    where = ["--split", str(split), "--hosts", ",".join(cassandra.hosts), "--port", str(cassandra.port)]
    usual = [*where, "--size=16", "--b=9", "--out", str(tmp_path), "--checkpoint-every=4"]
    assert lightning_classifier.main([*usual, "--epochs=4"]) == 0
    resumed = lightning_classifier.parse_args([*usual, "--epochs=5", "--resume", str(tmp_path / "last.ckpt")])
    assert lightning_classifier.run(resumed) > 0.7


@pytest.mark.slow
def test_the_example_trains_on_two_processes(split: Path, cassandra: Cassandra, tmp_path: Path) -> None:
    where = ["--split", str(split), "--hosts", ",".join(cassandra.hosts), "--port", str(cassandra.port)]
    usual = [*where, "--size=16", "--b=9", "--out", str(tmp_path), "--epochs=4", "--devices=2"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *usual],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^top-1 \d+\.\d\d%$", done.stdout, re.MULTILINE), done.stdout


def test_a_missing_split_is_reported_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from training.examples import lightning_classifier

    assert lightning_classifier.main(["--split", str(tmp_path / "gone")]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("lightning_classifier.py: Wanted ")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--b=1000"], r"at least one batch of 1000 images\. Found: 54 in Split\("),
        (["--resume", "empty"], r"a checkpoint of Lightning at empty\. Found: another file, or a truncated one"),
        (["--resume", "other.pt"], r"a checkpoint of Lightning at other\.pt\. Found: another file"),
        (["--resume", "gone"], r"a checkpoint at gone\. Found: No such file"),
    ],
)
def test_incompatible_options_and_checkpoints_are_refused_in_one_line(
    split: Path,
    cassandra: Cassandra,
    tmp_path: Path,
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from training.examples import lightning_classifier

    monkeypatch.chdir(tmp_path)
    Path("empty").touch()
    torch.save({"format": 1}, "other.pt")
    where = ["--split", str(split), "--hosts", ",".join(cassandra.hosts), "--port", str(cassandra.port)]
    assert lightning_classifier.main([*where, "--size=16", *options]) == 1
    found = [line for line in capsys.readouterr().err.splitlines() if line.startswith("lightning_classifier.py: ")]
    assert len(found) == 1
    assert re.search(message, found[0]), found


def test_resuming_a_finished_training_says_nothing_is_left(
    split: Path, cassandra: Cassandra, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from training.examples import lightning_classifier

    where = ["--split", str(split), "--hosts", ",".join(cassandra.hosts), "--port", str(cassandra.port)]
    usual = [*where, "--size=16", "--b=9", "--out", str(tmp_path), "--checkpoint-every=6", "--epochs=1"]
    assert lightning_classifier.main(usual) == 0
    assert lightning_classifier.main([*usual, "--resume", str(tmp_path / "last.ckpt")]) == 0
    assert "nothing was left to train" in capsys.readouterr().out
