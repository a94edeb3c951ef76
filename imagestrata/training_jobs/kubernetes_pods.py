"""The pods of a rendered job: one pulls the dataset, the others train and read it at /datasets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from posixpath import normpath
from typing import Any, Literal

from imagestrata.training_jobs.datasets import PREFIX, TOKEN
from imagestrata.training_jobs.errors import JobError
from imagestrata.training_jobs.job import Container, TrainingJob

Kind = Literal["TrainJob", "PyTorchJob"]

_VOLUME, _SHARED_MEMORY = "imagestrata-datasets", "imagestrata-shm"
_PULL = "imagestrata-pull"
_SHM = "/dev/shm"
_MEBIBYTE = 1 << 20
# For each process, unless the memory limit is lower. Unused shared memory takes no memory.
_SHM_MEBIBYTES = 8192
_ELSEWHERE = ("initContainers", "volumes", "restartPolicy")
# Fields that a pod may need to be admitted, to find its image, or to be scheduled.
_OF_THE_PULL = (
    "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "hostAliases", "hostNetwork", "imagePullSecrets",
    "nodeSelector", "priorityClassName", "schedulerName", "securityContext", "serviceAccountName", "tolerations",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """Options of rendering: the service, the image that pulls, and the shared volume."""

    kind: Kind = "TrainJob"
    url: str | None = None
    pull_image: str = "imagestrata"
    token_secret: str = "imagestrata"
    volume_claim: str | None = None
    volume_size: str = "100Gi"
    storage_class: str | None = None
    max_restarts: int = 3


def processes(job: TrainingJob) -> int:
    """The number of processes in a pod: one for each GPU, or one without GPUs."""
    return max(1, job.containers[0].gpus)


def training_pod(
    job: TrainingJob, *, claim: str, main: str, command: Sequence[str], before: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the spec of a training pod without its restartPolicy: the first container runs ``command`` as ``main``,
    after the init containers ``before``. Raises `JobError` if fields of the job conflict with ours.
    """
    _check(job, main)
    volumes = [*job.pod.get("volumes", ()), _dataset_volume(claim)]
    containers = [_container(one, job.dataset, number == 0) for number, one in enumerate(job.containers)]
    containers[0] |= {"name": main, "command": list(command)}
    if not job.pod.get("hostIPC") and _SHM not in map(_mount_path, containers[0]["volumeMounts"]):
        containers[0]["volumeMounts"].append({"name": _SHARED_MEMORY, "mountPath": _SHM})
        size = {"medium": "Memory", "sizeLimit": _shared_memory(job)}
        volumes.append({"name": _SHARED_MEMORY, "emptyDir": size})
    init = [*before, *job.pod.get("initContainers", ())]
    return {
        **({"initContainers": init} if init else {}),
        "containers": containers,
        "volumes": volumes,
        **{name: value for name, value in job.pod.items() if name not in _ELSEWHERE},
    }


def pull_pod(job: TrainingJob, *, claim: str, pull: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod that only pulls."""
    shared = {name: job.pod[name] for name in _OF_THE_PULL if name in job.pod}
    return {"restartPolicy": "OnFailure", "containers": [pull], "volumes": [_dataset_volume(claim)], **shared}


def pull_container(job: TrainingJob, options: RenderOptions) -> dict[str, Any]:
    """Return the container that pulls. Pods of a PyTorchJob keep what the first of them pulled."""
    token = {"name": options.token_secret, "key": "token", "optional": True}
    keep = ["--keep"] if options.kind == "PyTorchJob" else []
    return {
        "name": _PULL,
        "image": options.pull_image,
        "command": ["imagestrata", "pull", job.dataset, str(PREFIX), "--url", options.url, *keep],
        "env": [{"name": TOKEN, "valueFrom": {"secretKeyRef": token}}],
        "volumeMounts": [{"name": _VOLUME, "mountPath": str(PREFIX)}],
    }


def _dataset_volume(claim: str) -> dict[str, Any]:
    return {"name": _VOLUME, "persistentVolumeClaim": {"claimName": claim}}


def _shared_memory(job: TrainingJob) -> str:
    """The size of /dev/shm: at most half of the memory limit, because it counts as memory of the container."""
    memory = job.containers[0].memory
    mebibytes = _SHM_MEBIBYTES * processes(job) if memory is None else max(1, memory // 2 // _MEBIBYTE)
    return f"{mebibytes}Mi"


def _container(container: Container, dataset: str, is_main: bool) -> dict[str, Any]:
    written = container.written
    named = {variable["name"] for variable in written.get("env", ())}
    ours = {"DATASETS": str(PREFIX), "DATASET": str(PREFIX / dataset)}
    if is_main:  # torch's agents would keep using the store of a lost agent
        ours["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    env = [{"name": name, "value": value} for name, value in ours.items() if name not in named]
    mounts = [*written.get("volumeMounts", ()), {"name": _VOLUME, "mountPath": str(PREFIX), "readOnly": True}]
    return {**written, "env": [*env, *written.get("env", ())], "volumeMounts": mounts}


def _check(job: TrainingJob, main: str) -> None:
    for name in ("volumes", "initContainers"):
        if not isinstance(job.pod.get(name, []), list):
            raise JobError(f"Wanted {name}, a list. Found: {job.pod[name]!r}")
    taken = {(_VOLUME, _SHARED_MEMORY): job.pod.get("volumes", ()), (_PULL,): job.pod.get("initContainers", ())}
    for names, entries in taken.items():
        for one in entries:
            if isinstance(one, Mapping) and one.get("name") in names:
                raise JobError(
                    f"Wanted no {one['name']} in the pods of the job, because that name is used here. Found: one"
                )
    if any(one.name == main for one in job.containers[1:]):
        raise JobError(f"Wanted {main} as the name of the first container only. Found: a later container with it")
    for container in job.containers:
        mounts = container.written.get("volumeMounts", [])
        if not isinstance(mounts, list):
            raise JobError(f"Wanted volumeMounts, a list. Found: {mounts!r}")
        for path in map(_mount_path, mounts):
            if path == str(PREFIX) or path.startswith(f"{PREFIX}/"):
                raise JobError(
                    f"Wanted no mount at {PREFIX}, which is for the dataset. "
                    f"Found: a mount of {container.name} at {path}"
                )


def _mount_path(mount: object) -> str:
    found = mount.get("mountPath") if isinstance(mount, Mapping) else None
    return normpath(f"/{str(found).lstrip('/')}")
