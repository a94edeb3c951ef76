"""Run a training job on this machine, or print its manifest for Kubernetes.

  imagestrata run job.yaml --url http://localhost:8080
  imagestrata run job.yaml                      the dataset is local already
  imagestrata run job.yaml --render --url http://datasets:8080 | kubectl apply -f -

A job file:

  apiVersion: "breezeml.ai/v1"
  kind: TrainingJob
  metadata:
    name: example-job
    namespace: lattice
  spec:
    minSize: 1                      the smallest number of replicas with which the job continues
    maxSize: 3                      replicas at the start, at most 1,000
    dataset: my_dataset             at /datasets/my_dataset, read-only; $DATASETS is /datasets, and $DATASET the dataset
    replicaSpecs:
      template:
        spec:
          containers:
            - name: trainingjob
              image: breezeml/lattice-resnet       for --render only: locally the command runs without it
              imagePullPolicy: Always
              command: ["python", "-u", "main.py"]
              resources: {limits: {nvidia.com/gpu: 4}}   with --render: 4 processes in each pod

A container may also have args, env and workingDir (default: the folder of the job file). All other fields of
containers and pods (volumes, nodeSelector, tolerations...) are for --render only.

Without --render, a replica is one process: the command of the first container runs under maxSize torchruns on this
machine. Standard error shows each step with its time. Lines of the replicas begin with their number: [0], [1]... A
killed process is not replaced. The others restart the command, which must continue from its own checkpoint; torchrun
sets RANK, WORLD_SIZE and its other variables for the new number of processes. Each process gets its own GPU if there
are enough.

--render prints Kubernetes documents. It runs nothing and needs no network.
  --kind TrainJob      for Kubeflow Trainer v2.2: a volume claim, a TrainingRuntime with the pods, and a TrainJob. One
                       pod pulls the dataset before the others start.
  --kind PyTorchJob    for Kubeflow's training operator v1. The first pod to start pulls, and the others wait for it.
All pods share the volume, and /dev/shm is in memory. The number of pods is always maxSize. If minSize is smaller,
torchrun continues without a lost pod; otherwise training waits until Kubernetes has replaced it.

environment:
  IMAGESTRATA_URL       the service; --url overrides it
  IMAGESTRATA_TOKEN     the token of the service; the job does not get it

exit codes:
  0  done
  1  the job failed: the command failed, too few processes are left, or the dataset cannot be pulled
  2  invalid job file or arguments; every problem is reported with its line
  130  interrupted; no process is left behind
"""

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

from formats import logs
from formats.command_line import Parser, command, size
from imagestrata.training_jobs.errors import JobError, JobFileError
from imagestrata.training_jobs.job import read_job
from imagestrata.training_jobs.kubernetes_names import check_image, check_object_name, check_size
from imagestrata.training_jobs.kubernetes_pods import Kind, RenderOptions
from imagestrata.training_jobs.manifests import rendered
from imagestrata.training_jobs.runner import RunOptions, run_job


@command("error")
def main(argv: Sequence[str] | None = None) -> int:
    """Run or render the job; returns the exit code."""
    args = _parser().parse_args(argv)
    path = Path(args.job)
    try:
        job = read_job(path)
        if args.render:
            options = RenderOptions(**{one.name: getattr(args, one.name) for one in fields(RenderOptions)})
            try:
                sys.stdout.write(rendered(job, options))
            except JobError as error:
                raise JobFileError([f"{path.name}: {error}"]) from error
            return 0
        limits = RunOptions(**{one.name: getattr(args, one.name) for one in fields(RunOptions)})
        return run_job(job, path, limits, _tell)
    except JobFileError as error:
        logs.tell("\n".join(error.problems), level=logging.ERROR)
        return 2


def _tell(line: str) -> None:
    logs.tell(f"run: {line}")


def _parser() -> Parser:
    parser = Parser("imagestrata run", manual=__doc__)
    add = parser.add_argument
    add("job", type=_file, metavar="job.yaml", help="the job file")
    url = os.environ.get("IMAGESTRATA_URL") or None
    add("--url", type=_url, default=url, help="the service that has the dataset (default: $IMAGESTRATA_URL)")
    add("--max-restarts", type=_count, default=3, metavar="N",
        help="restarts of a failing command, and replacements of each pod on average (default: 3)")  # fmt: skip
    add = parser.add_argument_group("here").add_argument
    add("--prefix", type=Path, metavar="DIR",
        help="the folder of datasets (default: /datasets if it is writable, else below ~/.cache)")  # fmt: skip
    add("--timeout", type=_seconds, metavar="SECONDS", help="end the job after this time (default: no limit)")
    add = parser.add_argument_group("for Kubernetes").add_argument
    add("--render", action="store_true", help="print the manifest instead of running the job")
    add("--kind", choices=get_args(Kind), default="TrainJob", help="what to print (default: TrainJob)")
    add("--pull-image", type=_checked(check_image, "an image"), default="imagestrata", metavar="IMAGE",
        help="image that pulls, with this package and its extra service (default: imagestrata)")  # fmt: skip
    add("--token-secret", type=_checked(check_object_name, "the name of a Secret"), default="imagestrata",
        metavar="NAME", help="Secret with the token of the service in its key 'token' "
        "(default: imagestrata)")  # fmt: skip
    add("--volume-claim", type=_checked(check_object_name, "the name of a claim"), metavar="NAME", help="existing "
        "claim: TrainJobs pull to it; without --url it must hold the dataset (default: a new claim)")  # fmt: skip
    add("--volume-size", type=_volume_size, default="100Gi", metavar="SIZE",
        help="size of the new claim, at least twice the size of the dataset (default: 100Gi)")  # fmt: skip
    add("--storage-class", type=_checked(check_object_name, "the name of a storage class"), metavar="NAME",
        help="storage class of the new claim (default: that of the cluster)")  # fmt: skip
    return parser


def _checked(check: Callable[[str, str], object], what: str) -> Callable[[str], str]:
    """An argument type for a value of Kubernetes."""

    def checked(text: str) -> str:
        try:
            check(text, what)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"w{str(error)[1:]}") from None
        return text

    return checked


def _volume_size(text: str) -> str:
    """A quantity of Kubernetes; other ways to write a size become bytes."""
    try:
        check_size(text, "the size of a volume")
        return text
    except ValueError:
        return str(size(text))


def _file(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"wanted a job file. Found: no file {text!r}")
    return Path(text)


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or "@" in text or parts.query or parts.fragment or not text.isprintable() or " " in text:
        # A password would be printed and be part of the manifest.
        shown = re.sub(r"//.*@", "//...@", text).partition("?")[0]
        raise argparse.ArgumentTypeError(
            f"wanted http://HOST:PORT or https://HOST, without a password (set IMAGESTRATA_TOKEN). Found: {shown!r}"
        )
    return text


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 10_000:
        raise argparse.ArgumentTypeError(f"wanted a number from 0 to 10000. Found: {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError(f"wanted seconds, more than 0. Found: {text!r}")
    return seconds
