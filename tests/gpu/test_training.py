"""Training on a GPU as users start it: from class folders and shards, with DALI on the GPU, stopped and continued."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import chdir, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.datasets import ImageFolder

import loader
from loader.shards import make_client, upload_cv_dataset
from tests.support.pictures import picture
from training import loop_read, train

ROOT = Path(__file__).resolve().parents[2]
COUNTS = {"train": 96, "val": 22}
CLASSES = 4
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=1"]
MODELS = "tests.support.small_models"
SMALL = ["-a", f"{MODELS}:stoppable", "--size=16", "--workers=2", "--lr=2", "--warmup=1", "--epochs=2", "--b=8"]
SMALL += ["--device=cuda", "--print-freq=4", "--trace=trace", "--figures=figures"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images as class folders, `train` and `val`, and as shards, `b/train` and `b/val`."""
    root = tmp_path_factory.mktemp("training")
    for side, count in COUNTS.items():
        for number in range(count):
            path = root / side / f"class {number % CLASSES}" / f"{number:03}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture(3 * (number % CLASSES), width=24 + number % 5, format="JPEG"))
        options: dict[str, Any] = {"maxsize": 20_480, "workers": 1, "progress": False}
        tree = ImageFolder(str(root / side))
        upload_cv_dataset(tree, client=make_client(root), bucket="b", base_folder=side, **options)
    return root


def sources(root: Path) -> dict[str, list[str]]:
    return {
        "folders": [str(root / "train"), str(root / "val")],
        "shards": [f"--{side}-shards={root / 'b' / side}" for side in COUNTS],
    }


def run(main: Callable[[Sequence[str]], int], arguments: Sequence[str], folder: Path) -> str:
    """The output of a script that ends well, in this process, which saves importing torch and DALI again."""
    folder.mkdir(exist_ok=True)
    with chdir(folder), redirect_stdout(io.StringIO()) as said:
        code = main(arguments)
    assert code == 0, said.getvalue()
    return said.getvalue()


def torchrun(script: str, arguments: Sequence[str], folder: Path) -> str:
    """The output of a script that ends well, as torchrun's only process."""
    found = subprocess.run(
        [sys.executable, *TORCHRUN, str(ROOT / "training" / script), *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def trace(folder: Path) -> list[Any]:
    lines = [json.loads(line) for line in (folder / "trace.0").read_text().splitlines()]
    return [(line["epoch"], line["step"], line["ids"]) for line in lines]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("folders", []),
        ("folders", ["--opt-level=O1"]),
        ("folders", ["--dali_cpu"]),
        ("folders", ["--transforms", f"{MODELS}:whole"]),
        ("folders", ["-a", "resnet18", "--size=64", "--opt-level=O2", "--loss-scale=128", "--lr=0.1"]),
        ("shards", []),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_model_is_trained_on_a_gpu(root: Path, tmp_path: Path, kind: str, more: list[str]) -> None:
    said = run(train.main, [*sources(root)[kind], *SMALL, "--epochs=4", *more], tmp_path)
    figures = [json.loads(line) for line in (tmp_path / "figures").read_text().splitlines()]
    assert [(line["train"]["images"], line["val"]["images"]) for line in figures] == [(96, 22)] * 4
    if "resnet18" not in more:
        assert max(line["val"]["top1"] for line in figures) > 0.7, figures
    assert "epoch 3  validation" in said


@pytest.mark.parametrize("kind", ["folders", "shards"])
def test_a_training_that_was_stopped_on_a_gpu_resumes_at_the_next_image(
    root: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = [*sources(root)[kind], *SMALL]
    run(train.main, usual, tmp_path / "whole")
    monkeypatch.setenv("STOP_AT_STEP", "16")
    said = run(train.main, usual, tmp_path / "stopped")
    monkeypatch.delenv("STOP_AT_STEP")
    assert "stopped in epoch 1: continue with --resume checkpoint.pt" in said
    said = torchrun("train.py", [*usual, "--resume"], tmp_path / "stopped")
    assert "continuing from checkpoint.pt: epoch 1, step 4\n" in said
    assert trace(tmp_path / "stopped") == trace(tmp_path / "whole")
    said = run(train.main, [*usual, "--device=cpu", "--evaluate", "--resume"], tmp_path / "stopped")
    assert "epoch 2  validation" in said


@pytest.mark.parametrize("decode", ["--decode", "--no-decode"])
@pytest.mark.parametrize("reader", ["file", "shards", "s3"])
def test_images_are_read_into_the_memory_of_a_gpu(root: Path, tmp_path: Path, reader: str, decode: str) -> None:
    place = ["--file-root", str(root / "train")] if reader == "file" else ["--shards", str(root / "b" / "train")]
    arguments = ["--reader", reader, *place, "--device=cuda", "--b=10", "--epochs=2", "--json", decode]
    found = json.loads(run(loop_read.main, arguments, tmp_path).splitlines()[-1])
    assert [one["images"] for one in found["all"]] == [96, 96]


def test_a_process_without_a_gpu_is_refused_in_one_line(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    count = torch.cuda.device_count()
    monkeypatch.setenv("LOCAL_RANK", str(count))
    assert train.main([*sources(root)["folders"], *SMALL]) == 1
    error = capfd.readouterr().err
    assert f"Wanted a CUDA device for local rank {count}. Found: {count}. Start fewer processes" in error


def test_lightning_gets_batches_on_its_gpu_and_continues(root: Path, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")
    from lightning.pytorch.callbacks import ModelCheckpoint

    from loader.lightning import ClassificationData

    class Model(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, CLASSES))
            self.seen: list[list[int]] = []
            self.devices: set[str] = set()
            self.validated = 0

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            images, labels = batch
            given = self.trainer.train_dataloader.given
            self.seen.append(given.positions.tolist())
            self.devices |= {str(images.device), str(labels.device)}
            return torch.nn.functional.cross_entropy(self.network(images), labels)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.validated += len(batch[0])
            self.devices |= {str(batch[0].device)}

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    learned, kept = (loader.open_folder(root / side) for side in COUNTS)

    def fit(model: Model, **options: Any) -> None:
        data = ClassificationData(
            partial(loader.FolderSource, learned), partial(loader.FolderSource, kept), batch_size=8, size=16
        )
        checkpoint = options.pop("ckpt_path", None)
        usual: dict[str, Any] = {"accelerator": "gpu", "devices": 1, "logger": False, "enable_progress_bar": False}
        usual |= {"num_sanity_val_steps": 0, "enable_model_summary": False, "default_root_dir": tmp_path}
        saved = ModelCheckpoint(tmp_path, save_top_k=0, save_last=True, every_n_train_steps=17)
        lightning.Trainer(**usual, **options, callbacks=[saved]).fit(model, data, ckpt_path=checkpoint)

    whole = Model()
    fit(whole, max_epochs=2)
    assert whole.devices == {"cuda:0"}
    assert whole.validated == 2 * COUNTS["val"]
    begun, rest = Model(), Model()
    (tmp_path / "last.ckpt").unlink()
    fit(begun, max_steps=17)
    fit(rest, max_epochs=2, ckpt_path=tmp_path / "last.ckpt")
    assert begun.seen + rest.seen == whole.seen
