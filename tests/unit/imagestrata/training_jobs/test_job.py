"""Job files: the accepted form, and the messages for other files."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagestrata.training_jobs.documents import Document
from imagestrata.training_jobs.errors import JobFileError
from imagestrata.training_jobs.job import read_job
from imagestrata.training_jobs.torchrun import arguments, expanded, is_torchrun, script
from tests.support.training_jobs import GOOD, read


def problems(folder: Path, text: str | bytes) -> list[str]:
    with pytest.raises(JobFileError) as caught:
        read(folder, text)
    return list(caught.value.problems)


def test_job_files_of_other_tools_are_read(tmp_path: Path) -> None:
    job = read(tmp_path, GOOD)
    assert (job.name, job.namespace, job.min_size, job.max_size) == ("example-job", "lattice", 1, 3)
    assert job.dataset == "my_dataset"
    (container,) = job.containers
    assert container.name == "trainingjob"
    assert container.image == "breezeml/lattice-resnet"
    assert container.command == ("python", "-u", "main.py")
    assert container.written["imagePullPolicy"] == "Always"
    assert container.working_dir is None
    assert dict(job.pod) == {}


def test_optional_fields_of_a_container_and_a_pod_are_read(tmp_path: Path) -> None:
    more = """\
            args: [--epochs, "3"]
            workingDir: code
            env: [{name: LR, value: "0.1"}, {name: KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: EMPTY}]
            resources: {limits: {nvidia.com/gpu: 1}}
        nodeSelector: {disk: fast, since: 2024-01-01}
"""
    job = read(tmp_path, GOOD.replace("metadata:\n", "metadata:\n  labels: {team: vision}\n") + more)
    (container,) = job.containers
    assert container.args == ("--epochs", "3")
    assert container.env == {"LR": "0.1", "EMPTY": ""}
    assert container.working_dir == "code"
    assert container.written["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert job.pod == {"nodeSelector": {"disk": "fast", "since": "2024-01-01"}}
    assert job.labels == {"team": "vision"}


BAD = {
    "another api": (('"breezeml.ai/v1"', "v1"), 1, "Wanted apiVersion: breezeml.ai/v1. Found: 'v1'"),
    "another kind": (("kind: TrainingJob", "kind: Pod"), 2, "Wanted kind: TrainingJob. Found: 'Pod'"),
    "no kind": (("kind: TrainingJob\n", ""), 1, "Wanted kind in a job. Found: none (add it)"),
    "nothing": (("  name: example-job", "  name:"), 4, "Wanted name, a text. Found: nothing"),
    "a name for no host": (("example-job", "Example_Job"), 4, "Found: 'Example_Job'"),
    "none": (("minSize: 1", "minSize: 0"), 7, "Wanted spec.minSize, a whole number from 1 to 1,000. Found: 0"),
    "a half": (("maxSize: 3", "maxSize: 1.5"), 8, "a whole number from 1 to 1,000. Found: 1.5"),
    "truth": (("maxSize: 3", "maxSize: yes"), 8, "Found: True"),
    "too many digits": (("maxSize: 3", f"maxSize: {'9' * 5000}"), 8, "a whole number from 1 to 1,000. Found: '999"),
    "upside down": (("minSize: 1", "minSize: 4"), 8, "Wanted spec.maxSize of at least minSize, 4. Found: 3"),
    "a path": (("my_dataset", "../etc"), 9, "spec.dataset: Wanted a dataset's name"),
    "a number for a name": (("my_dataset", "2024"), 9, "Found: 2024 (put it in quotes: '2024')"),
    "a near miss": (("minSize: 1", "minsize: 1"), 7, "Found: 'minsize' (did you mean minSize?)"),
    "what was missed": (("minSize: 1", "minsize: 1"), 7, "Wanted minSize in spec. Found: none (add it)"),
    "a pod's near miss": (("        containers:", "        volume: []\n        containers:"), 13, "mean volumes?"),
    "a container's near miss": (("imagePullPolicy", "imagepullpolicy"), 16, "did you mean imagePullPolicy?"),
    "no template": (("    template:", "    templates:"), 11, "did you mean template?"),
    "a policy": (("Always", "Sometimes"), 16, "or Never. Found: 'Sometimes'"),
    "a text for a list": (('["python", "-u", "main.py"]', "python main.py"), 17, "Wanted command, a list. Found: 'p"),
    "a number in a command": (('"main.py"', "5"), 17, "Wanted an item of command, a text. Found: 5"),
    "no command": (('["python", "-u", "main.py"]', "[]"), 17, "Wanted command, a list of at least one text"),
    "twice": (("  maxSize: 3", "  maxSize: 3\n  maxSize: 4"), 9, "field once. Found: 'maxSize' again, after line 8"),
    "fields for a list": (("containers:\n          - name", "containers:\n            name"), 14, "containers, a list"),
    "a tag": (("my_dataset", "!!python/object:os.system x"), 9, "Found: the tag tag:yaml.org,2002:python/object"),
    "tabs": (("  minSize", "\tminSize"), 7, "Wanted YAML, one document. Found: "),
    "two of them": (("kind: Tr", "---\nkind: Tr"), 2, "Wanted YAML, one document. Found: "),
    "a merge": (("  minSize", "  <<: {a: b}\n  minSize"), 7, "Wanted names of fields, as texts. Found: '<<'"),
    "a number for a field": (("  minSize", "  7: a\n  minSize"), 7, "Wanted names of fields, as texts. Found: 7"),
    "a billion": (("maxSize: 3", "maxSize: 1000000000"), 8, "a whole number from 1 to 1,000. Found: 1000000000"),
    "a namespace": (("lattice\n", "Lattice\n"), 5, "Wanted metadata.namespace, 1 to 63 lower-case letters"),
    "a long name": (("trainingjob\n", f"{'a' * 64}\n"), 14, "Wanted the name of a container, 1 to 63"),
    "capitals": (("trainingjob\n", "Trainer\n"), 14, "Found: 'Trainer'"),
    "blanks in an image": (("breezeml/lattice-resnet", "my image:1"), 15, "Wanted image, [HOST[:PORT]/]PATH[:TAG]"),
    "no image": (("breezeml/lattice-resnet", '""'), 15, "Wanted image, [HOST"),
    "a label": (("  name: example-job", "  name: example-job\n  labels: {team: 'a b'}"), 5, "the value of team"),
    "a label's key": (("  name: example-job", "  name: example-job\n  labels: {-x: a}"), 5, "Wanted a key of labels"),
    "a queue": (("      spec:\n", "      metadata: {annotations: {A B: c}}\n      spec:\n"), 12, "of the template's"),
    "a pod's label": (("        containers:", "        nodeSelector: {disk: 5}\n        containers:"), 13, "quotes: '"),
    "own size": (('"python", "-u"', "torchrun, --nnodes=1"), 17, "because maxSize is 3. Found: --nnodes=1 (remove it)"),
    "alone": (('"-u"', '"-m", torch.distributed.run, --standalone'), 17, "Found: --standalone (remove it)"),
    "itself": (("  name: example-job", "  labels: &a {b: *a}\n  name: example-job"), 4, "20,000 values, 60 deep"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_field_is_reported_with_its_line(tmp_path: Path, case: str) -> None:
    (old, new), line, said = BAD[case]
    assert old in GOOD
    found = problems(tmp_path, GOOD.replace(old, new, 1))
    assert any(problem.startswith(f"job.yaml:{line}: ") and said in problem for problem in found), found


RESOURCES = {
    "half a GPU": ("{limits: {nvidia.com/gpu: 1.5}}", "Wanted nvidia.com/gpu, a whole number up to 128. Found: 1.5"),
    "too many": ("{limits: {nvidia.com/gpu: 1000000000}}", "a whole number up to 128. Found: 1000000000"),
    "less than none": ("{limits: {nvidia.com/gpu: -1}}", "Found: -1"),
    "truth": ("{limits: {nvidia.com/gpu: true}}", "Found: True"),
    "a list": (
        "{limits: [nvidia.com/gpu]}",
        "Wanted resources.limits, names with quantities. Found: a list, 1 of them",
    ),
    "a near miss": ("{limit: {nvidia.com/gpu: 1}}", "Found: 'limit' (did you mean limits?)"),
    "requests alone": ("{requests: {nvidia.com/gpu: 1}}", "Found: 1 in requests, nothing in limits (set it in limits"),
    "other requests": ("{limits: {nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: 1}}", "1 in requests, 2 in limits"),
    "a wrong unit": ("{limits: {memory: 8GB}}", "Wanted memory in resources.limits, a number with a unit"),
    "more than its limit": ("{limits: {memory: 1Gi}, requests: {memory: 2G}}", "not above its limit. Found: '2G'"),
}


@pytest.mark.parametrize("case", RESOURCES)
def test_wrong_resources_are_reported_with_their_line(tmp_path: Path, case: str) -> None:
    resources, said = RESOURCES[case]
    (found,) = problems(tmp_path, f"{GOOD}            resources: {resources}\n")
    assert found.startswith("job.yaml:18: ")
    assert said in found


NAMES = {
    "a claim": ("volumes: [{name: data, persistentVolumeClaim: {claimName: -x}}]", "claimName, 1 to 253 lower-case"),
    "a volume": ("volumes: [{name: data.1, emptyDir: {}}]", "Wanted volumes.name, 1 to 63"),
    "a Secret": ("volumes: [{name: data, secret: {secretName: My_Secret}}]", "Found: 'My_Secret'"),
    "for images": ("imagePullSecrets: [{name: a..b}]", "Wanted imagePullSecrets.name"),
    "an account": ("serviceAccountName: 5", "Wanted serviceAccountName, a text. Found: 5"),
    "an init container": ("initContainers: [{name: Warm, image: busybox}]", "Wanted initContainers.name"),
    "its image": ("initContainers: [{name: warm, image: Bad}]", "Wanted initContainers.image"),
    "its Secret": (
        "initContainers: [{name: warm, image: busybox, envFrom: [{secretRef: {name: A}}]}]",
        "Wanted initContainers.envFrom.secretRef.name",
    ),
}


@pytest.mark.parametrize("case", NAMES)
def test_wrong_names_in_pods_are_reported_with_their_line(tmp_path: Path, case: str) -> None:
    field, said = NAMES[case]
    (found,) = problems(tmp_path, GOOD.replace("        containers:", f"        {field}\n        containers:"))
    assert found.startswith("job.yaml:13: ")
    assert said in found


def test_all_wrong_fields_are_reported_together(tmp_path: Path) -> None:
    text = GOOD.replace("TrainingJob", "Job").replace("maxSize: 3", "maxSize: x").replace("image: ", "imago: ")
    lines = [problem.split(": ")[0] for problem in problems(tmp_path, text)]
    assert lines == ["job.yaml:2", "job.yaml:8", "job.yaml:14", "job.yaml:15"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Found: an empty file"),
        ("[1, 2]", "Wanted a job with fields (apiVersion, kind, metadata, spec). Found: a list, 2 of them"),
        ("[" * 5000, "nested"),
        (b"\xff\xfe\x00", "Wanted YAML"),
        ("a" * (2 << 20), "Found: more"),
        ("b: &b [x]\n" + "".join(f"{a}: &{a} [{', '.join(['*' + b] * 9)}]\n" for b, a in pairwise("bcdefghi")), "more"),
    ],
)  # fmt: skip
def test_a_text_that_is_not_a_job_is_refused(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert said in problems(tmp_path, text)[0]


@given(st.lists(st.sampled_from([*GOOD.splitlines(keepends=True), "- \n", "  x: *y\n", "? [a]\n", "!!set {a}\n"])))
def test_any_text_gives_a_job_or_a_list_of_problems(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text("".join(lines), encoding="utf-8")
    try:
        told = ["any.yaml: a job", str(read_job(path))]
    except JobFileError as error:
        told = list(error.problems)
    assert told
    assert all(problem.startswith(("any.yaml:", "TrainingJob")) for problem in told)


def test_a_missing_document_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Document(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("command", "given"),
    [
        (["python", "-u", "main.py", "--lr", "1"], ["main.py", "--lr", "1"]),
        (["/usr/bin/python3.11", "main.py"], ["main.py"]),
        (["python3", "-m", "app.train", "x"], ["-m", "app.train", "x"]),
        (["python", "-O", "main.py"], ["--no-python", "PY", "-O", "main.py"]),
        (["python", "-c", "pass"], ["--no-python", "PY", "-c", "pass"]),
        (["./train.sh", "x"], ["--no-python", "./train.sh", "x"]),
        (["torchrun", "main.py"], ["main.py"]),
        (["python", "-m", "torch.distributed.run", "main.py"], ["main.py"]),
    ],
)
def test_commands_are_translated_for_torchrun(command: list[str], given: list[str]) -> None:
    assert arguments(command, "PY") == given
    assert is_torchrun(command) == (command[0] == "torchrun" or "torch.distributed.run" in command)
    assert script(command) == ("main.py" if given[0] == "main.py" and not is_torchrun(command) else None)


def test_torchrun_may_have_its_own_size_where_a_job_has_one_process(tmp_path: Path) -> None:
    alone = GOOD.replace("maxSize: 3", "maxSize: 1").replace('"python", "-u"', "torchrun, --standalone")
    assert read(tmp_path, alone).containers[0].command == ("torchrun", "--standalone", "main.py")
    of_the_script = GOOD.replace('"python", "-u", "main.py"', 'torchrun, --nproc-per-node=2, "main.py", --nnodes=1')
    assert read(tmp_path, of_the_script).max_size == 3


def test_references_are_expanded_as_in_kubernetes() -> None:
    told = expanded(["$(A)/$(B)", "$$(A)", "$A", "$(A"], {"A": "x"})
    assert told == ["x/$(B)", "$(A)", "$A", "$(A"]
