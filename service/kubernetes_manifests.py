"""A training job for Kubernetes, as Kubeflow's training operator reads it: an elastic PyTorchJob.

Its pods pull the dataset before they train, and see it read-only at /datasets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from service.job_datasets import PREFIX, TOKEN
from service.job_errors import JobError
from service.torchrun_commands import arguments, is_python, is_torchrun
from service.training_jobs import Container, TrainingJob

_VOLUME = "imagestrata-datasets"
_PULL = "imagestrata-pull"
# The operator looks for a container of this name.
_MAIN = "pytorch"
_ELSEWHERE = ("initContainers", "volumes", "restartPolicy")
_RESTARTS = ("Always", "OnFailure", "Never")


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """Whence and whereto pods pull: the service, the image that pulls, the secret of its token, the volume's claim."""

    url: str | None = None
    pull_image: str = "imagestrata"
    token_secret: str = "imagestrata"
    volume_claim: str | None = None
    max_restarts: int = 3


def rendered(job: TrainingJob, options: RenderOptions) -> str:
    """The manifest as YAML, the same text for the same job. Raises `JobError` for what does not go together."""
    text = yaml.dump(manifest(job, options), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return f"# The first container is named {_MAIN}, by which the training operator knows it.\n{text}"


def manifest(job: TrainingJob, options: RenderOptions) -> dict[str, Any]:
    """The manifest as plain lists and mappings. Raises `JobError` for what does not go together."""
    _check(job, options)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": job.name,
            **_given(namespace=job.namespace, labels=dict(job.labels), annotations=dict(job.annotations)),
        },
        "spec": {
            "nprocPerNode": "1",
            "runPolicy": {"cleanPodPolicy": "Running"},
            "elasticPolicy": {
                "rdzvBackend": "c10d",
                "minReplicas": job.min_size,
                "maxReplicas": job.max_size,
                "maxRestarts": options.max_restarts,
            },
            "pytorchReplicaSpecs": {
                "Worker": {
                    "replicas": job.max_size,
                    "restartPolicy": job.pod.get("restartPolicy", "OnFailure"),
                    "template": {**_given(metadata=dict(job.pod_metadata)), "spec": _pod(job, options)},
                }
            },
        },
    }


def _pod(job: TrainingJob, options: RenderOptions) -> dict[str, Any]:
    claim = {"claimName": options.volume_claim}
    volume = {"persistentVolumeClaim": claim} if options.volume_claim else {"emptyDir": {}}
    before = [_pull(job.dataset, options)] if options.url else []
    others = {name: value for name, value in job.pod.items() if name not in _ELSEWHERE}
    return {
        **_given(initContainers=[*before, *job.pod.get("initContainers", ())]),
        "containers": [_container(one, job.dataset, place == 0) for place, one in enumerate(job.containers)],
        "volumes": [*job.pod.get("volumes", ()), {"name": _VOLUME, **volume}],
        **others,
    }


def _pull(dataset: str, options: RenderOptions) -> dict[str, Any]:
    secret = {"name": options.token_secret, "key": "token", "optional": True}
    return {
        "name": _PULL,
        "image": options.pull_image,
        "command": ["python", "-m", "service", "pull", dataset, str(PREFIX), "--url", options.url],
        "env": [{"name": TOKEN, "valueFrom": {"secretKeyRef": secret}}],
        "volumeMounts": [{"name": _VOLUME, "mountPath": str(PREFIX)}],
    }


def _container(container: Container, dataset: str, is_main: bool) -> dict[str, Any]:
    ours = {"DATASETS": str(PREFIX), "DATASET": str(PREFIX / dataset)}
    if is_main:  # as here: torch's agents would keep the store of one that is lost
        ours["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    written = container.written
    named = {variable["name"] for variable in written.get("env", ())}
    env = [{"name": name, "value": value} for name, value in ours.items() if name not in named]
    mounts = [*written.get("volumeMounts", ()), {"name": _VOLUME, "mountPath": str(PREFIX), "readOnly": True}]
    made = {**written, "env": [*env, *written.get("env", ())], "volumeMounts": mounts}
    if is_main:
        made["name"] = _MAIN
        if not is_torchrun(container.command):
            # The operator tells torchrun by variables who takes part, and where they meet.
            python = container.command[0] if is_python(container.command) else ""
            torchrun = [python, "-m", "torch.distributed.run"] if python else ["torchrun"]
            made["command"] = [*torchrun, *arguments(container.command)]
    return made


def _check(job: TrainingJob, options: RenderOptions) -> None:
    if not options.url and not options.volume_claim:
        raise JobError(
            f"Wanted a service from which pods pull {job.dataset}, or a volume that holds it. Found: neither (--url "
            "URL, or --volume-claim NAME)"
        )
    if job.pod.get("restartPolicy", "OnFailure") not in _RESTARTS:
        raise JobError(f"Wanted restartPolicy: {', '.join(_RESTARTS)}. Found: {job.pod['restartPolicy']!r}")
    for name in ("volumes", "initContainers"):
        if not isinstance(job.pod.get(name, []), list):
            raise JobError(f"Wanted {name}, a list. Found: {job.pod[name]!r}")
    taken = {_VOLUME: job.pod.get("volumes", ()), _PULL: job.pod.get("initContainers", ())}
    for name, entries in taken.items():
        if any(isinstance(one, Mapping) and one.get("name") == name for one in entries):
            raise JobError(f"Wanted another name than {name}, which is taken. Found: it in the job's pods")
    if any(one.name == _MAIN for one in job.containers[1:]):
        raise JobError(f"Wanted {_MAIN} as the first container, which trains. Found: a later one of that name")
    for container in job.containers:
        mounts = container.written.get("volumeMounts", [])
        if not isinstance(mounts, list):
            raise JobError(f"Wanted volumeMounts, a list. Found: {mounts!r}")
        if any(isinstance(one, Mapping) and str(one.get("mountPath")).rstrip("/") == str(PREFIX) for one in mounts):
            raise JobError(f"Wanted {PREFIX} free for the dataset. Found: a mount of {container.name} there")


def _given(**fields: Any) -> dict[str, Any]:
    """Fields that say something."""
    return {name: value for name, value in fields.items() if value}


class _Dumper(yaml.SafeDumper):
    """Without anchors: what stands twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
