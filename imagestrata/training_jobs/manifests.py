"""Manifests of training jobs: a TrainJob for Kubeflow Trainer v2.2, or a PyTorchJob for the training operator v1.

All pods of a job share one volume. The manifest has a claim for it, unless the name of an existing claim is given.
"""

from typing import Any

import yaml

from imagestrata.training_jobs.errors import JobError
from imagestrata.training_jobs.job import TrainingJob
from imagestrata.training_jobs.kubernetes_pods import RenderOptions, processes, pull_container, pull_pod, training_pod
from imagestrata.training_jobs.torchrun import arguments, starter

_TRAINER = "trainer.kubeflow.org"
_RESTARTS = {"TrainJob": ("OnFailure", "Never"), "PyTorchJob": ("Always", "OnFailure", "Never")}
# Trainer sets these variables in pods; torchrun reads them.
_RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
# The longest name of a pod of a TrainJob is NAME-node-0-INDEX-abcde, and it is used as a label.
_MOST_POD_NAME = 63


def rendered(job: TrainingJob, options: RenderOptions) -> str:
    """Return the manifest as YAML, the same text for the same job. Raises `JobError` for conflicting options."""
    found = documents(job, options)
    text = yaml.dump_all(found, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return "".join(f"# {line}\n" for line in _comment(job, options)) + text


def documents(job: TrainingJob, options: RenderOptions) -> list[dict[str, Any]]:
    """Return the documents of the manifest as plain values. Raises `JobError` for conflicting options."""
    _check(job, options)
    claim = options.volume_claim or f"{job.name}-datasets"
    made = [] if options.volume_claim else [_claim(job, options, claim)]
    if options.kind == "PyTorchJob":
        return [*made, _pytorch_job(job, options, claim)]
    return [*made, _training_runtime(job, options, claim), _train_job(job)]


def _comment(job: TrainingJob, options: RenderOptions) -> list[str]:
    wants = "Kubeflow Trainer v2.2" if options.kind == "TrainJob" else "Kubeflow's training operator v1"
    most, count = job.max_size, processes(job)
    pods, each = ("1 pod", "") if most == 1 else (f"{most} pods", " each")
    lines = [f"For {wants}: {pods} with {count} training {'process' if count == 1 else 'processes'}{each}."]
    if job.min_size < most:
        lines += [
            f"There are always {most} pods. When a pod is lost, torchrun continues with {job.min_size} or more when",
            "they detect it (NCCL: after its timeout). The loss of the first pod stops all others until it is",
            "replaced, because it runs the rendezvous.",
        ]
    else:
        lines.append("Restartable, not elastic: when a pod is lost, training waits until Kubernetes has replaced it.")
    lines.append("After each change of pods the command restarts: it must continue from its own checkpoint.")
    if options.kind == "TrainJob":
        of_all = ", with all of its containers" if len(job.containers) > 1 else ""
        lines += [
            f"The job is complete when every pod has ended with success{of_all}.",
            "If the TrainJob is refused because its TrainingRuntime is not there yet, apply this file again.",
        ]
        if options.url and options.volume_claim:
            lines.append("A newer version replaces the older one in the claim, even for jobs that are reading it.")
    if options.kind == "PyTorchJob" and options.url:
        lines.append("The volume keeps the version that the first pod pulls: delete the claim to train on a newer one.")
    if most > 1:
        locks = ", and file locks between nodes" if options.kind == "PyTorchJob" and options.url else ""
        lines.append(f"The pods share the volume: its storage class must support ReadWriteMany{locks}.")
    return lines


def _claim(job: TrainingJob, options: RenderOptions, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _metadata(job, name=name),
        "spec": {
            # Pods can use a ReadWriteOnce volume one after the other.
            "accessModes": ["ReadWriteMany" if job.max_size > 1 else "ReadWriteOnce"],
            **_given(storageClassName=options.storage_class),
            "resources": {"requests": {"storage": options.volume_size}},
        },
    }


def _training_runtime(job: TrainingJob, options: RenderOptions, claim: str) -> dict[str, Any]:
    """Return the TrainingRuntime, because a TrainJob cannot add containers to those of its runtime."""
    command = job.containers[0].command
    size = [f"--nnodes={job.min_size}:{job.max_size}", f"--max-restarts={options.max_restarts}"]
    meeting = [f"--rdzv-id={job.name}", "--rdzv-backend=c10d", "--rdzv-endpoint=$(PET_MASTER_ADDR):$(PET_MASTER_PORT)"]
    pod = training_pod(job, claim=claim, main="node", command=[*starter(command), *size, *meeting, *arguments(command)])
    pulls = [{"name": "pull", "status": "Complete"}] if options.url else []
    node = {
        "name": "node",
        **_given(dependsOn=pulls),
        "template": {
            "metadata": {"labels": {f"{_TRAINER}/trainjob-ancestor-step": "trainer"}},
            "spec": {
                "backoffLimit": options.max_restarts * job.max_size,
                "template": _template(job, {"restartPolicy": job.pod.get("restartPolicy", "OnFailure"), **pod}),
            },
        },
    }
    steps = [node]
    if options.url:
        pulling = pull_pod(job, claim=claim, pull=pull_container(job, options))
        spec = {"backoffLimit": options.max_restarts, "template": _template(job, pulling)}
        steps.insert(0, {"name": "pull", "template": {"spec": spec}})
    return {
        "apiVersion": f"{_TRAINER}/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": _metadata(job, labels={f"{_TRAINER}/framework": "torch"}),
        "spec": {
            "mlPolicy": {"numNodes": job.max_size, "torch": {}},
            "template": {"spec": {"replicatedJobs": steps}},
        },
    }


def _train_job(job: TrainingJob) -> dict[str, Any]:
    return {
        "apiVersion": f"{_TRAINER}/v1alpha1",
        "kind": "TrainJob",
        "metadata": {**_metadata(job), **_given(annotations=dict(job.annotations))},
        "spec": {
            "runtimeRef": {"apiGroup": _TRAINER, "kind": "TrainingRuntime", "name": job.name},
            "trainer": {"numNodes": job.max_size, "numProcPerNode": processes(job)},
        },
    }


def _pytorch_job(job: TrainingJob, options: RenderOptions, claim: str) -> dict[str, Any]:
    # The operator looks for a container named pytorch, and sets the variables for the rendezvous of torchrun.
    command = job.containers[0].command
    before = [pull_container(job, options)] if options.url else []
    pod = training_pod(
        job, claim=claim, main="pytorch", command=[*starter(command), *arguments(command)], before=before
    )
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {**_metadata(job), **_given(annotations=dict(job.annotations))},
        "spec": {
            "nprocPerNode": str(processes(job)),
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
                    "template": _template(job, pod),
                }
            },
        },
    }


def _template(job: TrainingJob, spec: dict[str, Any]) -> dict[str, Any]:
    return {**_given(metadata=dict(job.pod_metadata)), "spec": spec}


def _metadata(job: TrainingJob, *, name: str = "", labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"name": name or job.name, **_given(namespace=job.namespace, labels={**job.labels, **(labels or {})})}


def _check(job: TrainingJob, options: RenderOptions) -> None:
    if not options.url and not options.volume_claim:
        raise JobError(
            f"Wanted a service from which pods pull {job.dataset}, or a volume that holds it. Found: neither (give "
            "--url URL or --volume-claim NAME)"
        )
    if options.kind == "PyTorchJob" and options.url and options.volume_claim:
        raise JobError(
            "Wanted a PyTorchJob that pulls to its own claim, or uses the dataset in yours. Found: --url "
            f"{options.url} and --volume-claim {options.volume_claim} (its pods start one by one and could pull "
            "different versions: remove one of the options and unset IMAGESTRATA_URL, or render a TrainJob)"
        )
    restarts = _RESTARTS[options.kind]
    if job.pod.get("restartPolicy", "OnFailure") not in restarts:
        raise JobError(f"Wanted restartPolicy: {', '.join(restarts)}. Found: {job.pod['restartPolicy']!r}")
    if options.kind == "TrainJob":
        most = _MOST_POD_NAME - len(f"-node-0-{job.max_size - 1}-abcde")
        if len(job.name) > most:
            raise JobError(
                f"Wanted metadata.name of at most {most} characters, because names of pods begin with it. Found: "
                f"{job.name}, {len(job.name)} characters"
            )
        own = [one["name"] for one in job.containers[0].written.get("env", ()) if one["name"] in _RESERVED]
        if own:
            raise JobError(
                f"Wanted env without variables that Trainer sets for torchrun. Found: {', '.join(own)} (remove them)"
            )


def _given(**fields: Any) -> dict[str, Any]:
    """Drop empty fields."""
    return {name: value for name, value in fields.items() if value}


class _Dumper(yaml.SafeDumper):
    """A dumper without anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
