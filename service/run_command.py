"""Run a training job here, on a dataset of a service; or tell how Kubernetes would run it.

  python -m service run job.yaml --url http://localhost:8080
  python -m service run job.yaml                                  the dataset lies in the prefix already
  python -m service run job.yaml --render --url http://datasets:8080 | kubectl apply -f -

A job file:

  apiVersion: "breezeml.ai/v1"
  kind: TrainingJob
  metadata:
    name: example-job
    namespace: lattice
  spec:
    minSize: 1                      the job goes on while so many processes are left
    maxSize: 3                      so many are started, each with a torchrun of its own
    dataset: my_dataset             at /datasets/my_dataset, read-only; $DATASETS is /datasets, and $DATASET the dataset
    replicaSpecs:
      template:
        spec:
          containers:
            - name: trainingjob
              image: breezeml/lattice-resnet       not used here, where the command runs as it is
              imagePullPolicy: Always
              command: ["python", "-u", "main.py"]

A container may also have args, env and workingDir (the folder of the job file, unless it is said); all else that
Kubernetes knows of containers and pods (resources, volumes, nodeSelector, tolerations...) is carried to --render.

Here, the first container's command runs under torchrun in maxSize processes, which meet on this machine alone; the
lines of each come with its number: [0], [1]... A process that is killed is not replaced: the others meet again without
it, and start the command anew, which carries on from its own checkpoint; RANK, WORLD_SIZE and the other variables of
torchrun say who is left. Each process has a GPU of its own, where there are enough.

With --render nothing runs, and no network is needed: the manifest of an elastic PyTorchJob for Kubeflow's training
operator is printed, whose pods pull the dataset into an empty volume, or into a claim, before they train.

environment:
  IMAGESTRATA_URL       the service, unless --url says it
  IMAGESTRATA_TOKEN     the token for it; the job itself does not see it

exit codes:
  0  done
  1  the job failed: the command gave up, too few processes are left, or the dataset cannot be had
  2  a job file or arguments that cannot be; every problem is told with its line
  130  interrupted; no process is left behind
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from service.job_errors import JobError, JobFileError
from service.job_runner import RunOptions, run_job
from service.kubernetes_manifests import RenderOptions, rendered
from service.training_jobs import read_job


def run(argv: Sequence[str]) -> int:
    """The command; returns its exit code. Raises `JobError`, OSError, KeyboardInterrupt."""
    args = _parser().parse_args(argv)
    path = Path(args.job)
    try:
        job = read_job(path)
        if args.render:
            options = RenderOptions(
                url=args.url,
                pull_image=args.pull_image,
                token_secret=args.token_secret,
                volume_claim=args.volume_claim,
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m service run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("job", type=_file, metavar="job.yaml", help="the job file")
    url = os.environ.get("IMAGESTRATA_URL") or None
    parser.add_argument("--url", type=_url, default=url, help="the service that has the dataset (IMAGESTRATA_URL)")
    parser.add_argument(
        "--max-restarts", type=_count, default=3, metavar="N", help="how often a failing command is started anew (3)"
    )
    here = parser.add_argument_group("here")
    here.add_argument(
        "--prefix", type=Path, metavar="DIR", help="the folder of datasets (/datasets, or one of yours below ~/.cache)"
    )
    here.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="end the job after so long (no limit)")
    render = parser.add_argument_group("for Kubernetes")
    render.add_argument("--render", action="store_true", help="print the manifest instead of running the job")
    render.add_argument(
        "--pull-image",
        default="imagestrata",
        metavar="IMAGE",
        help="what pulls: an image with this package and its extras service and loader (imagestrata)",
    )
    render.add_argument(
        "--token-secret", default="imagestrata", metavar="NAME", help="the Secret whose key 'token' is it (imagestrata)"
    )
    render.add_argument("--volume-claim", metavar="NAME", help="pull into this claim, or find the dataset there")
    return parser


def _file(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"wanted a job file. Found: no file {text!r}")
    return Path(text)


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"wanted http://HOST:PORT or https://HOST. Found: {text!r}")
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
