"""Job files for training."""

from pathlib import Path
from typing import Any

import yaml

from imagestrata.training_jobs.job import TrainingJob, read_job

GOOD = """\
apiVersion: "breezeml.ai/v1"
kind: TrainingJob
metadata:
  name: example-job
  namespace: lattice
spec:
  minSize: 1
  maxSize: 3
  dataset: my_dataset
  replicaSpecs:
    template:
      spec:
        containers:
          - name: trainingjob
            image: breezeml/lattice-resnet
            imagePullPolicy: Always
            command: ["python", "-u", "main.py"]
"""


def read(folder: Path, text: str | bytes) -> TrainingJob:
    path = folder / "job.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_job(path)


def write_job(folder: Path, command: list[str], least: int = 1, most: int = 1, **container: Any) -> Path:
    """A job file that runs a command on the dataset ``my_dataset``."""
    given = {"name": "train", "image": "hub/train:1", "command": command, **container}
    job = {
        "apiVersion": "breezeml.ai/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "example-job"},
        "spec": {
            "minSize": least,
            "maxSize": most,
            "dataset": "my_dataset",
            "replicaSpecs": {"template": {"spec": {"containers": [given]}}},
        },
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job), encoding="utf-8")
    return folder / "job.yaml"
