"""The README's recipes for Hugging Face's accelerate and Trainer, in two processes: each sample once, or an error."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.pictures import picture

ROOT = Path(__file__).resolve().parents[2]
COUNT = 27  # not a multiple of batches or processes

SCRIPT = """
import json, os, sys
import torch, transformers
from accelerate import Accelerator
from torch.utils.data import DataLoader
import loader

# Each image is a separate class: labels show which images came.
folder, out = loader.open_folder(sys.argv[1]), sys.argv[2]
accelerator = Accelerator(cpu=True)
found = {}


def small(image):
    return torch.tensor(image.getpixel((0, 0)), dtype=torch.float32)


def source(**options):
    return loader.FolderSource(folder, batch_size=4, **options)


def labels_of(batches):
    own = [label for _, labels in batches for label in labels.tolist()]
    every = [None] * accelerator.num_processes
    torch.distributed.all_gather_object(every, own)
    return [label for one in every for label in one]


def error_of(call):
    try:
        return f"no error: {call()}"
    except loader.OptionError as error:
        return str(error)


# By index, prepared: accelerate's sampler shares out the indices; it repeats some, to have equal numbers.
images = loader.ImageDataset(folder, small)
prepared = accelerator.prepare(DataLoader(images, batch_size=4, shuffle=True, num_workers=2))
found["by index"] = labels_of(prepared)
gathered = [accelerator.gather_for_metrics(labels).tolist() for _, labels in prepared]
found["by index, for metrics"] = [label for labels in gathered for label in labels]

# A source, not prepared: its ranks were detected.
dataset = loader.TorchDataset(source(), transform=small, sharded=True)
for epoch in range(2):
    found[f"shared out by the source, {epoch}"] = labels_of(DataLoader(dataset, batch_size=None, num_workers=2))

# A source that reads everything, prepared: the first process reads for all.
whole = loader.TorchDataset(source(rank=0, world_size=1), transform=small)
batches = accelerator.prepare(DataLoader(whole, batch_size=None))
gathered = [accelerator.gather_for_metrics(labels).tolist() for _, labels in batches]
found["dispatched"] = [label for labels in gathered for label in labels]

# What would lose samples.
found["not said"] = error_of(lambda: loader.TorchDataset(source(), transform=small))
for workers in (0, 2):
    wrong = accelerator.prepare(DataLoader(dataset, batch_size=None, num_workers=workers))
    found[f"said and prepared, {workers}"] = error_of(lambda: list(wrong))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(3, 100), []

    def forward(self, pixel_values, labels):
        self.seen += labels.tolist()
        logits = self.layer(pixel_values)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def collate(samples):
    images, labels = zip(*samples)
    return {"pixel_values": torch.stack(images), "labels": torch.tensor(labels)}


model = Model()
arguments = transformers.TrainingArguments(
    out, num_train_epochs=1, per_device_train_batch_size=4, dataloader_num_workers=2, report_to=[], save_strategy="no",
    use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
)  # fmt: skip
transformers.Trainer(model=model, args=arguments, train_dataset=images, data_collator=collate).train()
found["Trainer"] = labels_of([(None, torch.tensor(model.seen))])

if accelerator.is_main_process:
    with open(os.path.join(out, "found.json"), "w") as file:
        json.dump(found, file)
torch.distributed.destroy_process_group()
"""


def test_two_processes_see_each_sample_once_or_raise(tmp_path: Path) -> None:
    for number in range(COUNT):
        path = tmp_path / "tree" / f"{number:02}" / "image.png"
        path.parent.mkdir(parents=True)
        path.write_bytes(picture(number))
    (tmp_path / "train.py").write_text(SCRIPT)
    out = tmp_path / "out"
    out.mkdir()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]), "OMP_NUM_THREADS": "1"}
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    done = subprocess.run(
        [*torchrun, tmp_path / "train.py", tmp_path / "tree", out],
        env=os.environ | environment | offline,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((out / "found.json").read_text())
    each = list(range(COUNT))
    for name in ("by index, for metrics", "shared out by the source, 0", "shared out by the source, 1", "dispatched"):
        assert sorted(found[name]) == each, name
    for name in ("by index", "Trainer"):
        assert sorted({*found[name]}) == each, name
        assert len(found[name]) <= COUNT + 2 * 4, name  # padded, so that both have the same number
    assert "Found: a source that is rank 0 of 2 already" in found["not said"]
    for workers in (0, 2):
        message = found[f"said and prepared, {workers}"]
        assert "Found: the share of rank 0 of 2; prepare() would lose the other ranks' shares" in message, message
