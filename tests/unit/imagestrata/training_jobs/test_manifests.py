"""Manifests for Kubernetes, against the published models of Kubernetes, Kubeflow Trainer and the training operator."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from imagestrata.training_jobs.command import main
from imagestrata.training_jobs.errors import JobError
from imagestrata.training_jobs.job import CONTAINER_FIELDS, POD_FIELDS
from imagestrata.training_jobs.kubernetes_pods import Kind, RenderOptions
from imagestrata.training_jobs.manifests import documents, rendered
from tests.support.training_jobs import GOOD, read

URL = "http://datasets:8080"
RICH = (
    GOOD.replace("metadata:\n", "metadata:\n  labels: {team: vision}\n  annotations: {note: 'a: b'}\n").replace(
        "    template:\n", "    template:\n      metadata: {labels: {queue: night}}\n"
    )
    + """\
            args: [--data, $(DATASET)]
            env: [{name: LR, value: "0.1"}, {name: KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}]
            workingDir: /workspace
            resources: {limits: {nvidia.com/gpu: "1", memory: 8Gi}}
            volumeMounts: [{name: scratch, mountPath: /scratch}]
          - {name: sidecar, image: busybox, command: [sleep, "1"]}
        initContainers: [{name: warm, image: busybox, command: ["true"]}]
        volumes: [{name: scratch, emptyDir: {sizeLimit: 1Gi}}]
        nodeSelector: {disk: fast}
        tolerations: [{key: gpu, operator: Exists, effect: NoSchedule}]
        restartPolicy: Never
        terminationGracePeriodSeconds: 60
"""
)


class _Response:
    """What the client's deserializer takes as a response."""

    def __init__(self, data: object) -> None:
        self.data = json.dumps(data)


def through(found: dict[str, Any], model: str) -> Any:
    """Read a mapping into a model and write it again, which drops what the model does not know."""
    if model.startswith(("Trainer", "IoK8s")):
        models = pytest.importorskip("kubeflow_trainer_api.models")
        return getattr(models, model).from_dict(found).to_dict()
    training = pytest.importorskip("kubeflow.training")
    client = pytest.importorskip("kubernetes.client")
    api = training.api_client.ApiClient() if model.startswith("Kubeflow") else client.ApiClient()
    return api.sanitize_for_serialization(api.deserialize(_Response(found), model))


MODELS = {
    "PersistentVolumeClaim": ("V1PersistentVolumeClaim", "IoK8sApiCoreV1PersistentVolumeClaim"),
    "TrainingRuntime": ("TrainerV1alpha1TrainingRuntime",),
    "TrainJob": ("TrainerV1alpha1TrainJob",),
    "PyTorchJob": ("KubeflowOrgV1PyTorchJob",),
}


def options(kind: Kind = "TrainJob", **more: Any) -> RenderOptions:
    return RenderOptions(kind=kind, **{"url": URL, **more})


def pods(found: dict[str, Any]) -> dict[str, Any]:
    """The pod templates of a document by step name."""
    if found["kind"] == "PyTorchJob":
        return {"node": found["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]}
    if found["kind"] == "TrainingRuntime":
        steps = found["spec"]["template"]["spec"]["replicatedJobs"]
        return {step["name"]: step["template"]["spec"]["template"] for step in steps}
    return {}


def node_of(folder: Path, text: str, options: RenderOptions) -> dict[str, Any]:
    """The spec of the pods that train."""
    found = documents(read(folder, text), options)
    spec: dict[str, Any] = next(pod for one in found for name, pod in pods(one).items() if name == "node")["spec"]
    return spec


def resources(text: str) -> str:
    """The job file with resources of its first container."""
    return f"{GOOD}            resources: {text}\n"


@pytest.mark.parametrize("kind", ["TrainJob", "PyTorchJob"])
@pytest.mark.parametrize("text", [GOOD, RICH], ids=["plain", "rich"])
@pytest.mark.parametrize("place", [{}, {"url": None, "volume_claim": "shared"}, {"storage_class": "nfs"}])
def test_every_field_is_known_to_the_published_models(
    tmp_path: Path, kind: Kind, text: str, place: dict[str, str | None]
) -> None:
    found = list(yaml.safe_load_all(rendered(read(tmp_path, text), options(kind, **place))))
    own_claim = [] if place.get("volume_claim") else ["PersistentVolumeClaim"]
    assert [one["kind"] for one in found] == [
        *own_claim, *(["TrainingRuntime", "TrainJob"] if kind == "TrainJob" else ["PyTorchJob"])
    ]  # fmt: skip
    for one in found:
        for model in MODELS[one["kind"]]:
            assert through(one, model) == one
        for template in pods(one).values():
            assert through(template, "V1PodTemplateSpec") == template


def test_a_field_that_the_models_do_not_know_does_not_pass_them(tmp_path: Path) -> None:
    for kind in ("TrainJob", "PyTorchJob"):
        found = documents(read(tmp_path, GOOD), options(kind))[-1]
        spec = found["spec"]
        spec["elasticPolicies"] = {}
        assert through(found, MODELS[kind][0]) != found


def test_fields_match_those_of_kubernetes() -> None:
    client = pytest.importorskip("kubernetes.client")
    assert set(client.V1Container.attribute_map.values()) == CONTAINER_FIELDS
    assert set(client.V1PodSpec.attribute_map.values()) == POD_FIELDS


def test_a_train_job_pulls_once_before_its_pods_train(tmp_path: Path) -> None:
    given = options(pull_image="hub/pull:1", token_secret="reader", volume_size="5Gi", max_restarts=2)
    claim, runtime, job = documents(read(tmp_path, RICH), given)
    assert claim["metadata"]["name"] == "example-job-datasets"
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "5Gi"}}
    }  # fmt: skip
    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert job["metadata"] == {
        "name": "example-job", "namespace": "lattice", "labels": {"team": "vision"}, "annotations": {"note": "a: b"}
    }  # fmt: skip
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    assert job["spec"]["runtimeRef"]["kind"] == runtime["kind"] == "TrainingRuntime"
    assert runtime["metadata"]["namespace"] == claim["metadata"]["namespace"] == "lattice"
    assert job["spec"]["trainer"] == {"numNodes": 3, "numProcPerNode": 1}
    first, second = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert second["dependsOn"] == [{"name": first["name"], "status": "Complete"}]
    assert second["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert second["template"]["spec"]["backoffLimit"] == 6
    found = pods(runtime)
    (pull,) = found["pull"]["spec"]["containers"]
    assert pull["image"] == "hub/pull:1"
    assert pull["command"] == ["imagestrata", "pull", "my_dataset", "/datasets", "--url", URL]
    secret = {"name": "reader", "key": "token", "optional": True}
    assert pull["env"] == [{"name": "IMAGESTRATA_TOKEN", "valueFrom": {"secretKeyRef": secret}}]
    assert found["pull"]["spec"]["nodeSelector"] == {"disk": "fast"}
    assert found["pull"]["metadata"] == found["node"]["metadata"] == {"labels": {"queue": "night"}}
    (warm,) = found["node"]["spec"]["initContainers"]
    assert warm["name"] == "warm"
    assert "IMAGESTRATA_TOKEN" not in str(found["node"])
    assert found["node"]["spec"]["restartPolicy"] == "Never"


def test_a_pytorch_job_pulls_in_each_pod_into_one_volume(tmp_path: Path) -> None:
    claim, found = documents(read(tmp_path, RICH), options("PyTorchJob"))
    assert (found["apiVersion"], found["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert found["spec"]["elasticPolicy"] == {
        "rdzvBackend": "c10d", "minReplicas": 1, "maxReplicas": 3, "maxRestarts": 3
    }  # fmt: skip
    worker = found["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert (worker["replicas"], worker["restartPolicy"]) == (3, "Never")
    pod = worker["template"]["spec"]
    pull, warm = pod["initContainers"]
    assert (pull["name"], warm["name"]) == ("imagestrata-pull", "warm")
    assert pull["command"][-1] == "--keep"
    assert pull["volumeMounts"] == [{"name": "imagestrata-datasets", "mountPath": "/datasets"}]
    shared = {"claimName": claim["metadata"]["name"]}
    assert {"name": "imagestrata-datasets", "persistentVolumeClaim": shared} in pod["volumes"]
    assert "restartPolicy" not in pod


@pytest.mark.parametrize(("kind", "name"), [("TrainJob", "node"), ("PyTorchJob", "pytorch")])
def test_containers_keep_their_fields_and_see_the_dataset(tmp_path: Path, kind: Kind, name: str) -> None:
    pod = node_of(tmp_path, RICH, options(kind))
    main, sidecar = pod["containers"]
    assert main["name"] == name
    assert main["command"][:3] == ["python", "-m", "torch.distributed.run"]
    assert main["command"][-1] == "main.py"
    assert main["args"] == ["--data", "$(DATASET)"]
    assert (main["workingDir"], main["imagePullPolicy"]) == ("/workspace", "Always")
    assert sidecar["command"] == ["sleep", "1"]
    env = {variable["name"]: variable.get("value") for variable in main["env"]}
    assert (env["DATASETS"], env["DATASET"], env["LR"]) == ("/datasets", "/datasets/my_dataset", "0.1")
    assert list(env).index("DATASET") < list(env).index("LR")
    for container in (main, sidecar):
        assert {"name": "imagestrata-datasets", "mountPath": "/datasets", "readOnly": True} in container["volumeMounts"]
    assert {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}} in pod["volumes"]
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("command", "started", "given"),
    [
        ("[python, -u, main.py]", ["python", "-m", "torch.distributed.run"], ["main.py"]),
        ("[./train.sh, x]", ["torchrun"], ["--no-python", "./train.sh", "x"]),
        ("[/opt/torchrun, --nproc-per-node=2, main.py]", ["/opt/torchrun"], ["--nproc-per-node=2", "main.py"]),
        (
            "[python3, -m, torch.distributed.launch, main.py]",
            ["python3", "-m", "torch.distributed.launch"],
            ["main.py"],
        ),
    ],
)
def test_commands_meet_where_trainer_says(tmp_path: Path, command: str, started: list[str], given: list[str]) -> None:
    text = GOOD.replace('["python", "-u", "main.py"]', command)
    (main,) = node_of(tmp_path, text, options(max_restarts=7))["containers"]
    assert main["command"] == [
        *started,
        "--nnodes=1:3",
        "--max-restarts=7",
        "--rdzv-id=example-job",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=$(PET_MASTER_ADDR):$(PET_MASTER_PORT)",
        *given,  # of a repeated option, torchrun uses the last
    ]
    (main,) = node_of(tmp_path, text, options("PyTorchJob"))["containers"]
    assert main["command"] == [*started, *given]


@pytest.mark.parametrize(
    ("written", "processes", "memory"),
    [
        ("{}", 1, "8192Mi"),
        ("{limits: {nvidia.com/gpu: 0}}", 1, "8192Mi"),
        ('{limits: {nvidia.com/gpu: "4"}}', 4, "32768Mi"),
        ("{limits: {nvidia.com/gpu: 2, memory: 10Gi}, requests: {nvidia.com/gpu: 2, memory: 1G}}", 2, "5120Mi"),
        ("{limits: {amd.com/gpu: 8, memory: 1e9}}", 8, "476Mi"),
        ("{limits: {memory: 100k}}", 1, "1Mi"),
    ],
)
def test_processes_and_shared_memory_follow_the_resources(
    tmp_path: Path, written: str, processes: int, memory: str
) -> None:
    job = read(tmp_path, resources(written))
    assert documents(job, options())[-1]["spec"]["trainer"]["numProcPerNode"] == processes
    assert documents(job, options("PyTorchJob"))[-1]["spec"]["nprocPerNode"] == str(processes)
    pod = node_of(tmp_path, resources(written), options())
    shm = {"name": "imagestrata-shm", "emptyDir": {"medium": "Memory", "sizeLimit": memory}}
    assert shm in pod["volumes"]
    assert {"name": "imagestrata-shm", "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]


@pytest.mark.parametrize(
    ("old", "new"), [("mountPath: /scratch", "mountPath: /dev/shm/"), ("restartPolicy: Never", "hostIPC: true")]
)
def test_shared_memory_of_the_job_itself_stays(tmp_path: Path, old: str, new: str) -> None:
    pod = node_of(tmp_path, RICH.replace(old, new), options())
    assert "imagestrata-shm" not in str(pod)


def test_a_train_job_may_pull_into_a_claim_of_others(tmp_path: Path) -> None:
    runtime, _ = documents(read(tmp_path, GOOD), options(volume_claim="shared"))
    for template in pods(runtime).values():
        assert template["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "shared"}
    warning = "even for jobs that are reading it"
    assert warning in rendered(read(tmp_path, GOOD), options(volume_claim="shared"))
    assert warning not in rendered(read(tmp_path, GOOD), options())


def test_a_volume_claim_with_the_dataset_needs_no_service(tmp_path: Path) -> None:
    for kind in ("TrainJob", "PyTorchJob"):
        given = options(kind, url=None, volume_claim="shared")
        found = documents(read(tmp_path, GOOD), given)
        assert "pull" not in str(found)
        pod = node_of(tmp_path, GOOD, given)
        assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "shared"}


def test_a_job_of_one_pod_needs_no_shared_storage(tmp_path: Path) -> None:
    text = GOOD.replace("maxSize: 3", "maxSize: 1")
    assert documents(read(tmp_path, text), options())[0]["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert "ReadWriteMany" not in rendered(read(tmp_path, text), options())


def test_only_a_job_with_two_sizes_is_called_elastic(tmp_path: Path) -> None:
    text = rendered(read(tmp_path, GOOD), options())
    assert "continues with 1 or more when" in text
    assert "not elastic" not in text
    fixed = rendered(read(tmp_path, GOOD.replace("minSize: 1", "minSize: 3")), options())
    assert "Restartable, not elastic" in fixed
    assert "continues with" not in fixed


@pytest.mark.parametrize(
    ("kind", "old", "new", "said"),
    [
        ("TrainJob", "/scratch}", "/datasets/}", "Wanted no mount at /datasets"),
        ("TrainJob", "/scratch}", "//datasets/./my_dataset}", "Found: a mount of trainingjob at /datasets/my_dataset"),
        ("TrainJob", "{name: scratch, empty", "{name: imagestrata-datasets, empty", "that name is used here"),
        ("TrainJob", "{name: scratch, empty", "{name: imagestrata-shm, empty", "that name is used here"),
        ("TrainJob", "name: sidecar", "name: node", "as the name of the first container only"),
        ("TrainJob", "restartPolicy: Never", "restartPolicy: Always", "Wanted restartPolicy: OnFailure, Never"),
        ("TrainJob", "volumes: [{name: scratch, emptyDir: {sizeLimit: 1Gi}}]", "volumes: 5", "Wanted volumes, a list"),
        ("TrainJob", "{name: LR,", "{name: PET_NNODES,", "Found: PET_NNODES"),
        ("TrainJob", "name: example-job", f"name: {'a' * 49}", "at most 48 characters"),
        ("PyTorchJob", "name: sidecar", "name: pytorch", "as the name of the first container only"),
        ("PyTorchJob", "Policy: Never", "Policy: ExitCode", "Wanted restartPolicy: Always, OnFailure, Never"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(
    tmp_path: Path, kind: Kind, old: str, new: str, said: str
) -> None:
    assert old in RICH
    with pytest.raises(JobError, match=said):
        documents(read(tmp_path, RICH.replace(old, new)), options(kind))


def test_pods_that_could_pull_different_versions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="could pull different versions"):
        documents(read(tmp_path, GOOD), options("PyTorchJob", volume_claim="shared"))


def test_the_command_line_renders_offline_and_deterministically(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IMAGESTRATA_URL", raising=False)
    (tmp_path / "job.yaml").write_text(RICH, encoding="utf-8")
    command = [str(tmp_path / "job.yaml"), "--render"]
    address = ["--url", "http://none.invalid"]
    assert main([*command, *address]) == 0
    first = capsys.readouterr().out
    second = subprocess.run(
        [sys.executable, "-m", "imagestrata", "run", *command, *address],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert first == second.stdout
    assert [one["kind"] for one in yaml.safe_load_all(first)][-1] == "TrainJob"
    assert main(command) == 2
    no_service = capsys.readouterr()
    assert no_service.out == ""
    assert "--volume-claim NAME" in no_service.err
