"""Training jobs, read from job files: containers, dataset and number of processes."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from yaml.nodes import Node

from imagestrata.training_jobs.documents import Document, Fields
from imagestrata.training_jobs.kubernetes_names import check_image, check_label
from imagestrata.training_jobs.pods import check_annotations, check_container, check_labels, check_pod, resources
from imagestrata.training_jobs.torchrun import own_size
from schemas.datasets import check_name
from schemas.errors import SchemaError

API_VERSION = "breezeml.ai/v1"
KIND = "TrainingJob"
# All agents use one store in one process, and a typing error must not start a million pods.
MOST_REPLICAS = 1000

# Fields of containers and pods in Kubernetes. They are passed on when a job is rendered.
_OF_CONTAINERS = """
args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe resizePolicy resources
restartPolicy restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath
terminationMessagePolicy tty volumeDevices volumeMounts workingDir
"""
_OF_PODS = """
activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy enableServiceLinks
ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets
initContainers nodeName nodeSelector os overhead preemptionPolicy priority priorityClassName readinessGates
resourceClaims resources restartPolicy runtimeClassName schedulerName schedulingGates securityContext serviceAccount
serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds tolerations
topologySpreadConstraints volumes workloadRef
"""
CONTAINER_FIELDS, POD_FIELDS = frozenset(_OF_CONTAINERS.split()), frozenset(_OF_PODS.split())
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_JOB_NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,48}[a-z0-9])?")
_JOB_NAME_WORDS = "metadata.name, 1 to 50 lower-case letters, digits and '-' between them, the first a letter"
_VARIABLE = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of a job. ``env`` has the literal values of variables, ``gpus`` and ``memory`` (bytes) the limits,
    ``written`` all fields.
    """

    name: str
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None
    gpus: int = 0
    memory: int | None = None
    written: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A job: ``min_size`` to ``max_size`` replicas of its first container, and one dataset. ``pod`` has the other
    fields of its pods, ``pod_metadata`` their labels and annotations, as they are written.
    """

    name: str
    min_size: int
    max_size: int
    dataset: str
    containers: tuple[Container, ...]
    namespace: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod: Mapping[str, Any] = field(default_factory=dict)
    pod_metadata: Mapping[str, Any] = field(default_factory=dict)


def read_job(path: Path) -> TrainingJob:
    """Read a job file. Raises `JobFileError` with all problems in it, and OSError."""
    document = Document(path)
    top = document.fields(document.root, "a job", *_both("apiVersion", "kind", "metadata", "spec"))
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if name in top:
            document.text(top[name], name, _one_of(name, (wanted,)))
    named = ("name", "namespace", "labels", "annotations")
    metadata = document.fields(top.get("metadata"), "metadata", named, ("name",))
    spec = document.fields(top.get("spec"), "spec", *_both("minSize", "maxSize", "dataset", "replicaSpecs"))
    min_size, max_size = _sizes(document, spec)
    replicas = document.fields(spec.get("replicaSpecs"), "replicaSpecs", *_both("template"))
    template = document.fields(replicas.get("template"), "template", ("metadata", "spec"), ("spec",))
    pod_metadata = document.fields(template.get("metadata"), "metadata", ("labels", "annotations"))
    pod = document.fields(template.get("spec"), "the spec of the template", POD_FIELDS, ("containers",))
    check_pod(document, pod)
    for fields, what in ((metadata, "metadata"), (pod_metadata, "the template's metadata")):
        check_labels(document, fields.get("labels"), f"labels of {what}")
        check_annotations(document, fields.get("annotations"), f"annotations of {what}")
    job = TrainingJob(
        name=_text(document, metadata, "name", _wanted(_JOB_NAME_WORDS, _JOB_NAME.fullmatch)) or "",
        namespace=_text(document, metadata, "namespace", lambda found: check_label(found, "metadata.namespace")),
        labels=MappingProxyType(document.text_fields(metadata.get("labels"), "labels")),
        annotations=MappingProxyType(document.text_fields(metadata.get("annotations"), "annotations")),
        min_size=min_size,
        max_size=max_size,
        dataset=_text(document, spec, "dataset", _dataset) or "",
        containers=_containers(document, pod, max_size),
        pod=MappingProxyType({name: document.plain(node) for name, node in pod.items() if name != "containers"}),
        pod_metadata=MappingProxyType({name: document.text_fields(node, name) for name, node in pod_metadata.items()}),
    )
    document.check()
    return job


def _sizes(document: Document, spec: Fields) -> tuple[int, int]:
    min_size = document.count(spec.get("minSize"), "spec.minSize", 1, MOST_REPLICAS)
    if "maxSize" not in spec:
        return min_size, min_size
    max_size = document.count(spec["maxSize"], "spec.maxSize", 1, MOST_REPLICAS)
    if max_size < min_size:
        document.tell(spec["maxSize"], f"Wanted spec.maxSize of at least minSize, {min_size}. Found: {max_size}")
    return min_size, max_size


def _containers(document: Document, pod: Fields, max_size: int) -> tuple[Container, ...]:
    if "containers" not in pod:
        return ()
    nodes = document.items(pod["containers"], "containers")
    if not nodes:
        document.tell(pod["containers"], "Wanted at least one container. Found: none")
    made: list[Container] = []
    for node in nodes:
        fields = document.fields(node, "a container", CONTAINER_FIELDS, ("name", "image", "command"))
        container = _container(document, node, fields)
        own = own_size([*container.command, *container.args]) if container.command and not made else None
        if own and max_size > 1:
            document.tell(
                fields["command"],
                f"Wanted torchrun without its own size, because maxSize is {max_size}. Found: {own} (remove it)",
            )
        if container.name and any(one.name == container.name for one in made):
            document.tell(node, f"Wanted different names of containers. Found: {container.name!r} twice")
        made.append(container)
    return tuple(made)


def _container(document: Document, node: Node, fields: Fields) -> Container:
    command = document.texts(fields.get("command"), "command")
    if "command" in fields and not any(command):
        document.tell(fields["command"], "Wanted command, a list of at least one text. Found: none")
    if "imagePullPolicy" in fields:
        document.text(fields["imagePullPolicy"], "imagePullPolicy", _one_of("imagePullPolicy", _PULL_POLICIES))
    check_container(document, fields)
    gpus, memory = resources(document, fields)
    return Container(
        name=_text(document, fields, "name", lambda found: check_label(found, "the name of a container")) or "",
        image=_text(document, fields, "image", lambda found: check_image(found, "image")) or "",
        command=command,
        args=document.texts(fields.get("args"), "args"),
        env=_env(document, fields),
        working_dir=_text(document, fields, "workingDir", _not_empty("workingDir")),
        gpus=gpus,
        memory=memory,
        written=MappingProxyType({name: document.plain(value) for name, value in fields.items()}),
    )


def _env(document: Document, fields: Fields) -> Mapping[str, str]:
    made: dict[str, str] = {}
    for node in document.items(fields.get("env"), "env"):
        variable = document.fields(node, "a variable of env", ("name", "value", "valueFrom"), ("name",))
        name = _text(document, variable, "name", _wanted("a variable, letters, digits and '_.-'", _VARIABLE.fullmatch))
        if "value" in variable and "valueFrom" in variable:
            document.tell(node, f"Wanted value or valueFrom of {name}. Found: both")
        value = _text(document, variable, "value") if "valueFrom" not in variable else None
        if name and "valueFrom" not in variable:
            made[name] = value or ""
    return MappingProxyType(made)


def _text(document: Document, fields: Fields, name: str, check: Callable[[str], object] | None = None) -> str | None:
    return document.text(fields[name], name, check) if name in fields else None


def _both(*names: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The known and the required fields: all of them."""
    return names, names


def _one_of(what: str, values: tuple[str, ...]) -> Callable[[str], None]:
    return _wanted(f"{what}: {' or '.join(values)}", values.__contains__)


def _wanted(what: str, is_right: Callable[[str], object]) -> Callable[[str], None]:
    def check(found: str) -> None:
        if not is_right(found):
            raise ValueError(f"Wanted {what}. Found: {found[:80]!r}")

    return check


def _not_empty(what: str) -> Callable[[str], None]:
    def check(found: str) -> None:
        if not found.strip():
            raise ValueError(f"Wanted {what}. Found: empty text")

    return check


def _dataset(found: str) -> None:
    try:
        check_name(found)
    except SchemaError as error:
        raise ValueError(f"spec.dataset: {error}") from None
