"""Lint and validate `deploy/`, and compare it with our command lines, ports and files. No image is built."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from formats.stores.storage import Storage
from imagestrata import __version__
from imagestrata.service.access import Access
from imagestrata.service.commands import main
from imagestrata.service.server.app import make_app
from imagestrata.service.server.hosts import Hosts
from imagestrata.service.stores.folders import FolderStore
from imagestrata.service.tokens import Tokens
from imagestrata.service.uploads.uploads import Uploads

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
DOCKERFILES = sorted(DEPLOY.glob("*.Dockerfile"))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
KUBERNETES: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "service.yaml").read_text()))
POD = next(one for one in KUBERNETES if one["kind"] == "Deployment")["spec"]["template"]["spec"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def tool(name: str, *arguments: str) -> None:
    """Run a linter of the environment, which must find nothing."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / name), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def instructions(dockerfile: Path, name: str) -> list[str]:
    """The text after each use of an instruction, with its lines joined."""
    text = re.sub(
        r"\\\n", " ", "\n".join(one for one in dockerfile.read_text().splitlines() if not one.startswith("#"))
    )
    return re.findall(rf"^{name} +(.*)$", text, re.MULTILINE)


def words(dockerfile: Path, name: str) -> list[str]:
    """The last ENTRYPOINT or CMD."""
    return [str(one) for one in json.loads(instructions(dockerfile, name)[-1])]


def plain(arguments: list[str]) -> list[str]:
    """Arguments with ``--a=b`` as ``--a b``."""
    return [part for one in arguments for part in one.split("=", 1)]


def test_there_are_images_for_the_service_and_the_jobs() -> None:
    assert [one.name for one in DOCKERFILES] == ["jobs.Dockerfile", "service.Dockerfile"]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda one: one.name)
def test_a_dockerfile_passes_hadolint(dockerfile: Path) -> None:
    tool("hadolint", str(dockerfile))


def test_the_compose_file_follows_its_specification() -> None:
    tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yaml"))


def test_the_kubernetes_manifests_follow_their_schemas() -> None:
    tool("kubernetes-validate", "--strict", str(DEPLOY / "kubernetes" / "service.yaml"))


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda one: one.name)
def test_an_image_runs_as_a_user_without_rights_and_installs_extras_that_exist(dockerfile: Path) -> None:
    assert instructions(dockerfile, "USER") == ["10001:10001"]
    (setup,) = [one for one in instructions(dockerfile, "RUN") if "imagestrata.devstack.environment" in one]
    extras = re.findall(r"--extra (\S+)", setup)
    assert extras
    assert set(extras) <= set(PROJECT["project"]["optional-dependencies"])


def test_the_build_context_has_all_that_the_set_up_reads() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert [one for one in kept if not (ROOT / one).exists()] == []
    project, wheel = PROJECT["project"], PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], project["readme"], *project["license-files"]}
    assert needed | {"pyproject.toml", "requirements.lock", "spark-defaults.conf"} <= kept


def test_all_ways_start_the_service_by_the_same_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    image = DEPLOY / "service.Dockerfile"
    assert words(image, "ENTRYPOINT") == ["imagestrata"]
    (container,) = POD["containers"]
    command = words(image, "CMD")
    assert command == COMPOSE["services"]["service"]["command"] == plain(container["args"])
    with pytest.raises(SystemExit) as ended:
        main([command[0], "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert all(f"{one} " in told for one in command if one.startswith("--"))


def test_the_init_container_stores_a_token_that_the_service_then_takes(tmp_path: Path) -> None:
    (container,) = POD["initContainers"]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "token").write_text("0123456789abcdef" * 4)
    places = {mounts["datasets"]: str(tmp_path / "data"), mounts["token"]: str(tmp_path / "secret")}
    arguments = [
        re.sub("|".join(map(re.escape, places)), lambda found: places[found[0]], one) for one in container["args"]
    ]
    assert main(arguments) == main(arguments) == 0
    (token,) = Tokens(Storage(tmp_path / "data")).all()
    assert (token.name, token.scope) == ("admin", "write")
    serve = plain(POD["containers"][0]["args"])
    assert serve[serve.index("--root") + 1] == mounts["datasets"]


def test_probes_ask_an_address_and_a_port_of_the_service(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    access = Access(Tokens(Storage(tmp_path)), is_open=True, is_insecure=False)
    app = make_app(store, access=access, hosts=Hosts([], given=[], is_local=True), uploads=Uploads(store))
    paths = {getattr(route, "path", None) for route in app.routes}
    store.close()
    (container,) = POD["containers"]
    probes = [container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert {one["path"] for one in probes} == {"/health"} <= paths
    assert {one["port"] for one in probes} == {"http"}
    port = str(container["ports"][0]["containerPort"])
    health = f"http://127.0.0.1:{port}/health"
    assert instructions(DEPLOY / "service.Dockerfile", "EXPOSE") == [port]
    assert health in instructions(DEPLOY / "service.Dockerfile", "HEALTHCHECK")[0]
    assert health in COMPOSE["services"]["service"]["healthcheck"]["test"][-1]
    assert plain(container["args"])[-1] == port


def test_manifests_name_the_image_of_this_version() -> None:
    images = {one["image"] for one in [*POD["containers"], *POD["initContainers"]]}
    assert images == {f"imagestrata-service:{__version__}"}


def test_a_pod_is_the_only_one_and_has_no_rights() -> None:
    deployment = next(one for one in KUBERNETES if one["kind"] == "Deployment")["spec"]
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")
    assert POD["securityContext"]["runAsNonRoot"] is True
    for container in [*POD["containers"], *POD["initContainers"]]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert {"requests", "limits"} <= container["resources"].keys()
    assert [one["kind"] for one in KUBERNETES] == ["PersistentVolumeClaim", "Service", "Deployment"]


def test_secrets_have_no_defaults_and_are_in_no_file() -> None:
    secret = re.compile(r"SECRET|PASSWORD|TOKEN|ACCESS_KEY")
    for service in COMPOSE["services"].values():
        for name, value in service.get("environment", {}).items():
            assert not secret.search(name) or re.fullmatch(r"\$\{\w+:\?[^}]+\}", str(value)), name


def test_servers_without_passwords_listen_on_this_machine_alone() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_service_that_runs_is_watched_and_keeps_its_data() -> None:
    for name, service in COMPOSE["services"].items():
        named = {one.partition(":")[0] for one in service["volumes"]}
        assert named & set(COMPOSE["volumes"]), name
        assert "healthcheck" in service or service["profiles"] == ["jobs"], name


def test_the_jobs_image_submits_jobs_of_the_repository() -> None:
    assert words(DEPLOY / "jobs.Dockerfile", "ENTRYPOINT") == ["spark-submit"]
    readme = (DEPLOY / "README.md").read_text()
    shown = [
        word
        for line in readme.splitlines()
        for word in shlex.split(line, comments=True, posix=False)
        if "jobs/" in word
    ]
    scripts = [word for word in shown if re.fullmatch(r"jobs/\w+\.py", word)]
    assert scripts
    assert all((ROOT / one).is_file() for one in scripts)
