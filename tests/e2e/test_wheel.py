"""The wheel as users install it, in clean environments: the client, the loader and the jobs."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from imagestrata import __version__
from imagestrata.devstack import jars, java
from imagestrata.devstack.environment import Environment
from imagestrata.devstack.packaging import build_wheel
from imagestrata.devstack.servers.cassandra import Cassandra
from imagestrata.job_files import JOBS
from tests.support.dataset_servers import ServerInThread
from tests.support.services import fresh_name
from tests.support.trees import tree

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.13")
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
TABLES = ("-d", "no.data", "-m", "no.metadata")
OPTIONS = {
    "cache_rows": (*TABLES, "-o", "rows"),
    "delete": (*TABLES, "--source", "s", "--reason", "r"),
    "featurize": (*TABLES, "--features", "phash"),
    "ingest": (".", "--data-table", "no.data", "--metadata-table", "no.metadata"),
    "relabel": ("new.csv", *TABLES),
    "shard": (".", "-o", "../shards"),
    "split": (*TABLES, "-o", "split"),
    "verify": TABLES,
}
Install = Callable[..., "Installed"]


class Installed:
    """An environment with the wheel. Commands run in an empty folder, so they cannot import the checkout."""

    def __init__(self, folder: Path, work: Path, version: str) -> None:
        self.folder, self.work, self.version = folder, work, version

    def run(self, *command: str | Path, check: bool = True, **environment: str) -> "subprocess.CompletedProcess[str]":
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "SPARK", "VIRTUAL"))}
        kept |= {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "IMAGESTRATA_CACHE": str(self.work / "cache")}
        done = subprocess.run(
            [str(self.folder / "bin" / command[0]), *map(str, command[1:])],
            cwd=self.work,
            env=kept | environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0 or not check, done.stdout[-2000:] + done.stderr[-4000:]
        return done

    def python(self, code: str, *arguments: str | Path) -> str:
        return self.run("python", "-c", code, *arguments).stdout

    def job(self, name: str, *options: str | Path, port: int) -> dict[str, Any]:
        """Submit a job of the wheel with the connector for its Spark; return its report."""
        site_packages = self.folder / "lib" / f"python{self.version}" / "site-packages"
        script, defaults = (self.run("imagestrata", "job", one).stdout.strip() for one in (name, "defaults"))
        assert script.startswith(str(self.folder))
        submit = ["spark-submit", "--properties-file", defaults, "--master", "local[2]"]
        submit += ["--jars", ",".join(map(str, jars.connector(site_packages)))]
        submit += ["--conf", f"spark.cassandra.connection.port={port}"]
        # The quick compiler.
        settings = {"JAVA_HOME": java_home(), "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
        done = self.run(*submit, script, *options, "--json", **settings)
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return report


def python_of(version: str) -> str | None:
    """A Python of this version, on PATH or of pyenv. PATH may have a shim of pyenv's for one that it cannot run."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [shutil.which(f"python{version}"), *pyenv.glob(f"versions/{version}.*/bin/python{version}")]
    for one in filter(None, found):
        if subprocess.run([one, "-c", ""], capture_output=True, timeout=60, check=False).returncode == 0:
            return str(one)
    return None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(Environment(), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Create an environment of a Python version, an extra and other packages, once.

    Skips the test if there is no such Python.
    """
    made: dict[tuple[str, ...], Installed] = {}
    uv, env = Environment().folder / "bin" / "uv", Environment().uv_environment()
    # The locked versions are in uv's cache and do not change from day to day.
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = re.findall(r"^(\S+==[^\\\n]+)", lock, re.MULTILINE)

    def make(version: str, extra: str, *others: str) -> Installed:
        if (version, extra, *others) not in made:
            python = python_of(version)
            if python is None:
                pytest.skip(f"no python{version} on PATH or of pyenv")
            folder = tmp_path_factory.mktemp("clean")
            constraints = folder / "versions.txt"
            theirs = {re.split(r"[<=>]", other)[0] for other in others}
            constraints.write_text(
                "\n".join(one for one in locked if one.split("==")[0] not in theirs), encoding="utf-8"
            )
            install = [uv, "pip", "install", "--python", folder / "env/bin/python", "--system-certs"]
            install += ["--constraints", constraints, f"{wheel}[{extra}]" if extra else wheel, *others]
            for command in ([uv, "venv", "--quiet", "--python", python, folder / "env"], install):
                done = subprocess.run(
                    command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False
                )
                assert done.returncode == 0, done.stderr
            (folder / "work").mkdir()
            made[version, extra, *others] = Installed(folder / "env", folder / "work", version)
        return made[version, extra, *others]

    return make


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree(tmp_path_factory.mktemp("images"), splits=("train", "val"))


@pytest.fixture(scope="module")
def split(install: Install, images: Path, cassandra: Cassandra) -> Path:
    """A split of tables, both made with jobs of the wheel."""
    spark, keyspace = install(OWN, "spark"), fresh_name("wheel")
    tables = ("--data-table", f"{keyspace}.data", "--metadata-table", f"{keyspace}.metadata")
    splits = ("--split-subdir", "train", "--split-subdir", "val")
    spark.job("ingest", images, *splits, *tables, port=cassandra.port)
    spark.job("split", "-r", "1,1", "-o", spark.work / "split", *tables, port=cassandra.port)
    return spark.work / "split"


@pytest.mark.parametrize("version", PYTHONS)
def test_the_base_package_has_the_command_the_client_and_readers_of_folders(
    install: Install, images: Path, tmp_path: Path, version: str
) -> None:
    base = install(version, "")
    assert base.run("imagestrata", "--version").stdout == f"imagestrata {__version__}\n"
    assert "usage: imagestrata COMMAND" in base.run("imagestrata", "--help").stdout
    show = "from formats.local_node import PLACE; print(PLACE)"
    place = base.run("python", "-c", show, XDG_DATA_HOME=str(tmp_path)).stdout.strip()
    assert place == str(tmp_path / "imagestrata" / "cassandra" / "node.json")
    with ServerInThread(tmp_path / "root") as server:
        base.run("imagestrata", "push", images, "--name", "tiny", "--create", "--url", server.url)
        assert "tiny" in base.run("imagestrata", "list", "--url", server.url).stdout
        base.run("imagestrata", "pull", "tiny", base.work, "--url", server.url)
    for name in ("train/a/0.png", "val/c/3.png"):
        assert (base.work / "tiny" / name).read_bytes() == (images / name).read_bytes()
    code = (
        "import hashlib, sys, loader\n"
        "source = loader.FolderSource(loader.open_folder(sys.argv[1]), batch_size=5, seed=1)\n"
        "print(*sorted(hashlib.sha256(image).hexdigest() for batch in source.epoch(0) for image in batch.images))"
    )
    assert base.python(code, base.work / "tiny" / "train").split() == digests(images / "train")


@pytest.mark.parametrize("version", PYTHONS)
def test_the_loader_reads_a_split_from_cassandra_without_dali_and_torch(
    install: Install, split: Path, images: Path, cassandra: Cassandra, version: str
) -> None:
    code = (
        "import hashlib, sys, loader\n"
        "split = [loader.open_split(sys.argv[1], index=index) for index in range(2)]\n"
        "for one in split:\n"
        "    with loader.CassandraSource(one, hosts='127.0.0.1', port=int(sys.argv[2]), batch_size=5) as source:\n"
        "        for batch in source.epoch(0):\n"
        "            print(*(hashlib.sha256(image).hexdigest() for image in batch.images))\n"
        "try: source.read()\n"
        "except loader.MissingExtraError as error: print(error, file=sys.stderr)\n"
    )
    done = install(version, "loader").run("python", "-c", code, split, str(cassandra.port))
    assert sorted(done.stdout.split()) == digests(images)
    assert "pip install 'imagestrata[cuda120]'. For CUDA 13: cuda130." in done.stderr


def test_spark_3_ingests_and_splits_alike(install: Install, split: Path, images: Path, cassandra: Cassandra) -> None:
    spark, manifest = install("3.11", "spark", "pyspark<4"), json.loads((split / "_manifest.json").read_text())
    dataset, keyspace = manifest["data_table"].partition(".")[0], fresh_name("wheel")
    tables = ("--data-table", f"{keyspace}.data", "--metadata-table", f"{keyspace}.metadata")
    splits = ("--split-subdir", "train", "--split-subdir", "val", "--dataset", dataset)
    spark.job("ingest", images, *splits, *tables, port=cassandra.port)
    report = spark.job("split", "-r", "1,1", "-o", spark.work / "split", *tables, port=cassandra.port)
    assert report["fingerprints"] == [one["fingerprint"] for one in manifest["splits"]]


@pytest.mark.parametrize("version", PYTHONS)
def test_what_lacks_its_extra_says_in_one_line_what_to_install(install: Install, version: str) -> None:
    base = install(version, "")
    for job in JOBS:
        script = base.run("imagestrata", "job", job).stdout.strip()
        for command in (("python", script), ("python", "-m", f"jobs.{job}")):
            assert "usage: " in base.run(*command, "--help").stdout
            done = base.run(*command, *OPTIONS[job], check=False)
            assert done.returncode == 1
            wanted = rf"(options: .*\n)?{job}\.py: Wanted the library pyspark\. .*pip install 'imagestrata\[spark\]'\n"
            assert re.fullmatch(wanted, done.stderr), done.stderr
    done = base.run("imagestrata", "serve", "--root", base.work / "root", check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"error: .*pip install 'imagestrata\[service\]'\n", done.stderr), done.stderr


def test_a_spark_without_the_rest_of_the_extra_is_reported_in_one_line(install: Install, images: Path) -> None:
    spark = install(OWN, "spark")
    code = "import sys; sys.modules['PIL'] = None; from jobs import shard; sys.exit(shard.main())"
    done = spark.run("python", "-c", code, images, "-o", spark.work / "shards", check=False, JAVA_HOME=java_home())
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("shard.py: Wanted the library PIL. "), done.stderr
    assert "Traceback" not in done.stderr


def java_home() -> str:
    return str(java.find(Environment().site_packages).home)


def digests(folder: Path) -> list[str]:
    return sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.rglob("*.png"))
