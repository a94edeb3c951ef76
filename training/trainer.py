"""The training loop: a model, its batches, and its progress."""

import json
import math
import os
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

import loader
from training import TrainingError
from training.checkpoints import Checkpoint
from training.feeds import batches_of
from training.metrics import Metrics, Scores, Timer
from training.models import mixed_dtype, model_of
from training.ranks import Ranks
from training.train_options import TrainOptions

IMAGES_OF_LR = 256  # the global batch size that --lr is for; the rate is scaled with it (Goyal and others, 2017)


def lr_at(epoch: float, options: TrainOptions, world_size: int) -> float:
    """The learning rate at a point of the training, in epochs: a linear rise over the warm-up, then half a cosine."""
    most = options.lr * options.batch_size * world_size / IMAGES_OF_LR
    if epoch < options.warmup:
        return most * epoch / options.warmup
    left = max(options.epochs - options.warmup, 1e-9)
    return most * 0.5 * (1 + math.cos(math.pi * min(1.0, (epoch - options.warmup) / left)))


class Trainer:
    """A model, its batches, and its progress."""

    def __init__(self, options: TrainOptions, ranks: Ranks, train: loader.Source, val: loader.Source) -> None:
        self._options, self._ranks, self._train, self._val = options, ranks, train, val
        self._classes = options.classes or max(train.split.num_classes, val.split.num_classes)
        torch.manual_seed(options.seed)
        model = model_of(options.arch, self._classes, size=options.size).to(ranks.device)
        self._layout = torch.channels_last if options.opt_level == "O2" else torch.contiguous_format
        model = model.to(memory_format=self._layout)
        self._optimizer = torch.optim.SGD(
            model.parameters(), lr=0.0, momentum=options.momentum, weight_decay=options.weight_decay
        )
        mixed, is_cuda = mixed_dtype(options.opt_level, ranks), ranks.device.type == "cuda"
        if mixed is None and options.opt_level != "O0":
            self._say(
                f"--opt-level {options.opt_level}: this CPU lacks bfloat16, and emulating it is about four times "
                "slower. Using float32."
            )
        fixed: dict[str, Any] = {}
        if options.loss_scale != "dynamic":
            fixed = {"init_scale": float(options.loss_scale), "growth_interval": 1 << 30}
        self._scaler = torch.amp.GradScaler(ranks.device.type, enabled=mixed is torch.float16, **fixed)
        self._amp = torch.autocast(ranks.device.type, dtype=mixed or torch.bfloat16, enabled=mixed is not None)
        self._plain = model
        self._best = 0.0
        if options.resume is not None:
            self._resume(options.resume or options.checkpoint)
        if ranks.world_size > 1:
            model = nn.parallel.DistributedDataParallel(model, device_ids=[ranks.device_id] if is_cuda else None)
        self._model: Any = torch.compile(model) if options.compile else model
        self._loss = nn.CrossEntropyLoss(label_smoothing=options.label_smoothing)
        self._is_told = self._is_stopped = False
        self._train_batches = batches_of(train, options, ranks, train=True)
        self._val_batches = batches_of(val, options, ranks, train=False)

    def run(self) -> None:
        """Train from the current position to the last epoch, or until a signal; or only validate."""
        first, checkpoint = self._train.first_epoch, self._options.checkpoint
        if self._options.evaluate:
            if (figures := self.validate()) is None:
                self._say("stopped in validation")
                return
            self._tell("validation", figures, epoch=first)
            self._log(first, None, figures)
            return
        if first >= self._options.epochs:
            self._say(f"nothing is left to train: {first} of {self._options.epochs} epochs are complete")
        for epoch in range(first, self._options.epochs):
            trained = self.train(epoch)
            if self._is_stopped:
                self._say(f"stopped in epoch {epoch}: continue with --resume {checkpoint}")
                return
            self._tell("training", trained, epoch=epoch)
            self._save(checkpoint)  # before validation, which may take longer than the grace time after SIGTERM
            if (figures := self.validate()) is None:
                self._say(f"stopped in the validation after epoch {epoch}: continue with --resume {checkpoint}")
                return
            self._tell("validation", figures, epoch=epoch)
            self._log(epoch, trained, figures)
            if figures.top1 > self._best:
                self._best = figures.top1
                self._save(checkpoint)
                self._save(_best_name(checkpoint))

    def stop(self, *_: object) -> None:
        """End after the current step, on all ranks. A validation ends without figures."""
        self._is_told = True

    def train(self, epoch: int) -> Metrics:
        """One epoch, or the rest of it after a resume."""
        options, scores, timer = self._options, Scores(), Timer()
        steps, first = len(self._train), self._train.first_step(epoch)
        self._model.train()
        for step, batch in enumerate(timer.over(self._train_batches), first):
            images, labels = self._on_device(batch)
            rate = lr_at(epoch + (step + 0.5) / steps, options, self._ranks.world_size)
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            with self._amp:
                logits = self._model(images)
                loss = self._loss(logits, labels)
            self._optimizer.zero_grad(set_to_none=True)
            self._scaler.scale(loss).backward()
            self._scaler.step(self._optimizer)
            self._scaler.update()
            value = loss.item()
            scores.add(logits.detach(), labels, value)
            self._trace(epoch, value)
            if (step + 1) % options.print_freq == 0:
                self._say(f"epoch {epoch}  step {step + 1}/{steps}  loss {value:.4f}  lr {rate:.4g}  "
                          f"data {timer.data:.1f} s  compute {timer.compute:.1f} s")  # fmt: skip
            self._is_stopped = self._ranks.any(self._is_told)
            if self._is_stopped or (options.checkpoint_every and (step + 1) % options.checkpoint_every == 0):
                self._save(options.checkpoint)
            if self._is_stopped:
                break
        return Metrics.of(scores, timer, self._ranks)

    def validate(self) -> Metrics | None:
        """Each image of validation once; None if a signal ended it."""
        scores, timer = Scores(), Timer()
        self._plain.eval()
        self._ranks.share(self._plain.buffers())  # each rank has its own statistics; the first one's are saved
        with torch.inference_mode(), self._amp:
            for batch in timer.over(self._val_batches):
                images, labels = self._on_device(batch)
                logits = self._plain(images)
                scores.add(logits, labels, self._loss(logits, labels).item())
                if self._is_told:  # ranks may have one step more or less here: they meet after the last
                    break
        self._is_stopped = self._ranks.any(self._is_told)
        return None if self._is_stopped else Metrics.of(scores, timer, self._ranks)

    def _on_device(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = batch if isinstance(batch, tuple) else (batch["images"], batch["labels"])
        device = self._ranks.device
        images = images.to(device, memory_format=self._layout, non_blocking=True)
        return images, labels.to(device, non_blocking=True)

    def _save(self, path: str) -> None:
        state = self._train_batches.state_dict()
        # In order the states of all ranks are equal, but for the samples that each has left out.
        if self._ranks.world_size > 1 and "skip" in (self._options.on_missing, self._options.on_undecodable):
            state = loader.merge_states(self._ranks.all_of(state))
        if self._ranks.is_first:
            checkpoint = Checkpoint(
                arch=self._options.arch,
                classes=self._classes,
                model=self._plain.state_dict(),
                optimizer=self._optimizer.state_dict(),
                scaler=self._scaler.state_dict(),
                loader=state,
                best=self._best,
                options=asdict(self._options),
            )
            checkpoint.save(path)
            loader.record_model(
                path,
                training=self._train.split,
                validation=self._val.split,
                arch=checkpoint.arch,
                seed=self._options.seed,
                epochs=self._options.epochs,
                epoch=checkpoint.loader["epoch"],
            )

    def _resume(self, path: str) -> None:
        found = Checkpoint.read(path, arch=self._options.arch, classes=self._classes)
        try:
            self._train.load_state_dict(found.loader)
        except loader.StateError as error:
            raise TrainingError(
                f"Wanted a checkpoint of the same images, --seed, --sampling and --class-weight at {path}. {error}"
            ) from error
        self._plain.load_state_dict(found.model)
        self._optimizer.load_state_dict(found.optimizer)
        if found.scaler:
            self._scaler.load_state_dict(found.scaler)
        self._best = found.best
        epoch = self._train.first_epoch
        self._say(f"continuing from {path}: epoch {epoch}, step {self._train.first_step(epoch)}")

    def _trace(self, epoch: int, loss: float) -> None:
        if self._options.trace is not None:
            batch = self._train_batches.given
            assert batch is not None
            line = {"epoch": epoch, "step": batch.step, "loss": loss, "ids": [one.tobytes().hex() for one in batch.ids]}
            _append(f"{self._options.trace}.{self._ranks.rank}", line)

    def _log(self, epoch: int, trained: Metrics | None, validated: Metrics) -> None:
        if self._options.figures is not None and self._ranks.is_first:
            _append(
                self._options.figures, {"epoch": epoch, "train": trained and asdict(trained), "val": asdict(validated)}
            )

    def _tell(self, what: str, metrics: Metrics, *, epoch: int) -> None:
        self._say(f"epoch {epoch}  {what:10}  {metrics}")

    def _say(self, text: str) -> None:
        if self._ranks.is_first:
            print(text, flush=True)


def _best_name(path: str) -> str:
    stem, suffix = os.path.splitext(path)
    return f"{stem}-best{suffix}"


def _append(path: str, line: dict[str, Any]) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
