"""Run a training job here, on a dataset of a service, or print the manifest that runs it on Kubernetes.

  imagestrata run job.yaml --url http://localhost:8080
  imagestrata run job.yaml                      the dataset is in the prefix already
  imagestrata run job.yaml --render --url http://datasets:8080 | kubectl apply -f -

A job file:

  apiVersion: "breezeml.ai/v1"
  kind: TrainingJob
  metadata:
    name: example-job
    namespace: lattice
  spec:
    minSize: 1                      the job continues while so many replicas are left
    maxSize: 3                      so many are started, at most 1,000
    dataset: my_dataset             at /datasets/my_dataset, read-only; $DATASETS is /datasets, and $DATASET the dataset
    replicaSpecs:
      template:
        spec:
          containers:
            - name: trainingjob
              image: breezeml/lattice-resnet       not used here, where the command runs as it is
              imagePullPolicy: Always
              command: ["python", "-u", "main.py"]
              resources: {limits: {nvidia.com/gpu: 4}}   for --render: 4 processes in each pod, one for each GPU

A container may also have args, env and workingDir (default: the folder of the job file). All other fields that
Kubernetes knows of containers and pods (volumes, nodeSelector, tolerations...) are for --render.

Here, a replica is one process: the first container's command runs under maxSize torchruns, which meet on this machine
alone. Standard error says each step with its time; the lines of the replicas begin with their number: [0], [1]... A
process that is killed is not replaced. The others meet again without it and start the command again, which continues
from its own checkpoint; RANK, WORLD_SIZE and the other variables of torchrun say who is left. Each process gets its own
GPU if there are enough.

With --render nothing runs, and no network is needed. It prints Kubernetes documents:
  --kind TrainJob      for Kubeflow Trainer v2.2: a volume claim, a TrainingRuntime with the pods, and a TrainJob. One
                       pod pulls the dataset before the others start.
  --kind PyTorchJob    for Kubeflow's training operator v1. The first pod to start pulls, and the others wait for it.
All pods share the volume, and /dev/shm is memory. Either way there are always maxSize pods. If minSize is less,
torchrun continues with the others when a pod is lost; else training waits until Kubernetes has replaced it.

environment:
  IMAGESTRATA_URL       the service, unless --url says it
  IMAGESTRATA_TOKEN     the token for it; the job itself does not see it

exit codes:
  0  done
  1  the job failed: the command gave up, too few processes are left, or the dataset cannot be pulled
  2  a wrong job file or wrong arguments; every problem is reported with its line
  130  interrupted; no process is left behind
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

from formats.command_line import Parser, size
from imagestrata.service.jobs.errors import JobError, JobFileError
from imagestrata.service.jobs.kubernetes_names import check_image, check_object_name, check_size
from imagestrata.service.jobs.manifests import Kind, RenderOptions, rendered
from imagestrata.service.jobs.runner import RunOptions, run_job
from imagestrata.service.jobs.training_jobs import read_job


def run(argv: Sequence[str]) -> int:
    """The command; returns its exit code. Raises `JobError`, OSError, KeyboardInterrupt."""
    args = _parser().parse_args(argv)
    path = Path(args.job)
    try:
        job = read_job(path)
        if args.render:
            options = RenderOptions(
                kind=args.kind,
                url=args.url,
                pull_image=args.pull_image,
                token_secret=args.token_secret,
                volume_claim=args.volume_claim,
                volume_size=args.volume_size,
                storage_class=args.storage_class,
                max_restarts=args.max_restarts,
            )
            try:
                sys.stdout.write(rendered(job, options))
            except JobError as error:
                raise JobFileError([f"{path.name}: {error}"]) from error
            return 0
        limits = RunOptions(url=args.url, prefix=args.prefix, timeout=args.timeout, max_restarts=args.max_restarts)
        return run_job(job, path, limits, _tell)
    except JobFileError as error:
        sys.stderr.write("\n".join(error.problems) + "\n")
        return 2


def _tell(line: str) -> None:
    sys.stderr.write(f"run: {line}\n")
    sys.stderr.flush()


def _parser() -> Parser:
    parser = Parser("imagestrata run", manual=__doc__)
    parser.add_argument("job", type=_file, metavar="job.yaml", help="the job file")
    url = os.environ.get("IMAGESTRATA_URL") or None
    parser.add_argument("--url", type=_url, default=url, help="the service that has the dataset (IMAGESTRATA_URL)")
    parser.add_argument(
        "--max-restarts",
        type=_count,
        default=3,
        metavar="N",
        help="how often torchrun restarts a failing command, and a TrainJob replaces a pod on average (3)",
    )
    here = parser.add_argument_group("here")
    here.add_argument(
        "--prefix", type=Path, metavar="DIR", help="the folder of datasets (/datasets, or one of yours below ~/.cache)"
    )
    here.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="end the job after so long (no limit)")
    render = parser.add_argument_group("for Kubernetes")
    render.add_argument("--render", action="store_true", help="print the manifest instead of running the job")
    render.add_argument("--kind", choices=get_args(Kind), default="TrainJob", help="what to print (TrainJob)")
    render.add_argument(
        "--pull-image",
        type=_checked(check_image, "an image"),
        default="imagestrata",
        metavar="IMAGE",
        help="the image that pulls: it has this package with its extra service (imagestrata)",
    )
    render.add_argument(
        "--token-secret",
        type=_checked(check_object_name, "the name of a Secret"),
        default="imagestrata",
        metavar="NAME",
        help="the Secret whose key 'token' is the service's token (imagestrata)",
    )
    render.add_argument(
        "--volume-claim",
        type=_checked(check_object_name, "the name of a claim"),
        metavar="NAME",
        help="your claim: TrainJobs pull into it, or, without --url, the dataset is there already (a claim of the job)",
    )
    render.add_argument(
        "--volume-size",
        type=_volume_size,
        default="100Gi",
        metavar="SIZE",
        help="the size of the job's claim, at least twice the dataset's (100Gi)",
    )
    render.add_argument(
        "--storage-class",
        type=_checked(check_object_name, "the name of a storage class"),
        metavar="NAME",
        help="the storage class of the job's claim (the cluster's default)",
    )
    return parser


def _checked(check: Callable[[str, str], object], what: str) -> Callable[[str], str]:
    """A type of an argument that Kubernetes reads."""

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
        # A password would be printed, and be part of a manifest.
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
