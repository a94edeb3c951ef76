"""Manifests for Kubernetes, against the models of its own client and of Kubeflow's."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.__main__ import main
from service.job_errors import JobError
from service.kubernetes_manifests import RenderOptions, manifest, rendered
from service.training_jobs import CONTAINER_FIELDS, POD_FIELDS
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
    """What the client's deserializer takes for an answer."""

    def __init__(self, data: object) -> None:
        self.data = json.dumps(data)


def through(found: dict[str, Any], model: str) -> Any:
    """A mapping read into a model and written again: what the model does not know is lost on the way."""
    training = pytest.importorskip("kubeflow.training")
    client = pytest.importorskip("kubernetes.client")
    api = training.api_client.ApiClient() if model.startswith("Kubeflow") else client.ApiClient()
    return api.sanitize_for_serialization(api.deserialize(_Response(found), model))


@pytest.mark.parametrize("text", [GOOD, RICH], ids=["plain", "rich"])
@pytest.mark.parametrize("claim", [None, "shared"])
def test_every_field_is_known_to_the_kubernetes_models(tmp_path: Path, text: str, claim: str | None) -> None:
    job = read(tmp_path, text)
    found = yaml.safe_load(rendered(job, RenderOptions(url=URL, volume_claim=claim)))
    template = found["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    assert through(found, "KubeflowOrgV1PyTorchJob") == found
    assert through(template, "V1PodTemplateSpec") == template


def test_fields_match_those_of_kubernetes() -> None:
    client = pytest.importorskip("kubernetes.client")
    assert set(client.V1Container.attribute_map.values()) == CONTAINER_FIELDS
    assert set(client.V1PodSpec.attribute_map.values()) == POD_FIELDS


def test_a_manifest_contains_everything_in_the_job(tmp_path: Path) -> None:
    found = manifest(read(tmp_path, RICH), RenderOptions(url=URL, pull_image="hub/pull:1", token_secret="reader"))
    assert (found["apiVersion"], found["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert found["metadata"]["namespace"] == "lattice"
    assert found["spec"]["elasticPolicy"] == {
        "rdzvBackend": "c10d", "minReplicas": 1, "maxReplicas": 3, "maxRestarts": 3
    }  # fmt: skip
    worker = found["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert (worker["replicas"], worker["restartPolicy"]) == (3, "Never")
    pod = worker["template"]["spec"]
    pull, warm = pod["initContainers"]
    assert warm["name"] == "warm"
    assert pull["image"] == "hub/pull:1"
    assert pull["command"] == ["python", "-m", "service", "pull", "my_dataset", "/datasets", "--url", URL]
    secret = {"name": "reader", "key": "token", "optional": True}
    assert pull["env"] == [{"name": "IMAGESTRATA_TOKEN", "valueFrom": {"secretKeyRef": secret}}]
    main, sidecar = pod["containers"]
    assert main["name"] == "pytorch"
    assert main["command"] == ["python", "-m", "torch.distributed.run", "main.py"]
    assert main["args"] == ["--data", "$(DATASET)"]
    assert sidecar["command"] == ["sleep", "1"]
    env = {variable["name"]: variable.get("value") for variable in main["env"]}
    assert (env["DATASETS"], env["DATASET"], env["LR"]) == ("/datasets", "/datasets/my_dataset", "0.1")
    assert list(env).index("DATASET") < list(env).index("LR")
    volume = pull["volumeMounts"][0]["name"]
    assert "readOnly" not in pull["volumeMounts"][0]
    for container in (main, sidecar):
        assert {"name": volume, "mountPath": "/datasets", "readOnly": True} in container["volumeMounts"]
    assert {"name": volume, "emptyDir": {}} in pod["volumes"]
    assert "restartPolicy" not in pod


def test_a_volume_claim_with_the_dataset_needs_no_service(tmp_path: Path) -> None:
    found = manifest(read(tmp_path, GOOD), RenderOptions(volume_claim="shared"))
    pod = found["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert "initContainers" not in pod
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "shared"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("/scratch}", "/datasets/}", "Wanted /datasets free"),
        ("{name: scratch, empty", "{name: imagestrata-datasets, empty", "taken"),
        ("name: sidecar", "name: pytorch", "as the first container"),
        ("restartPolicy: Never", "restartPolicy: ExitCode", "Wanted restartPolicy"),
        ("volumes: [{name: scratch, emptyDir: {sizeLimit: 1Gi}}]", "volumes: 5", "Wanted volumes, a list"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in RICH
    with pytest.raises(JobError, match=said):
        manifest(read(tmp_path, RICH.replace(old, new)), RenderOptions(url=URL))


def test_the_command_line_renders_offline_and_deterministically(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IMAGESTRATA_URL", raising=False)
    (tmp_path / "job.yaml").write_text(RICH, encoding="utf-8")
    command = ["run", str(tmp_path / "job.yaml"), "--render"]
    address = ["--url", "http://none.invalid"]
    assert main([*command, *address]) == 0
    first = capsys.readouterr().out
    second = subprocess.run(
        [sys.executable, "-m", "service", *command, *address], capture_output=True, text=True, timeout=60, check=True
    )
    assert first == second.stdout
    assert yaml.safe_load(first)["metadata"]["name"] == "example-job"
    assert main(command) == 2
    no_service = capsys.readouterr()
    assert no_service.out == ""
    assert "--volume-claim NAME" in no_service.err
