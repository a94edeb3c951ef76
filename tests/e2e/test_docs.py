"""The `bash` and `python` blocks of the README and of `docs` are run, page by page, in a checkout.

The README comes first. Its `make demo` sets up the checkout and starts the Cassandra that all pages use.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagestrata.devstack.environment import Environment
from imagestrata.devstack.sparkconf import conf_folder
from tests.conftest import SECOND_CHECKOUT
from tests.support import documents, spark_start
from tests.support.documented_data import write_documented_data, write_plugin_tables
from tests.support.documents import Page

ROOT = Path(__file__).resolve().parents[2]
SECONDS_A_PAGE = 1500
OURS = Path(sys.executable).parent
README, *OTHERS = documents.pages()
# What the README has already run, what other tests cover, and what later pages still need.
NOT_HERE = ("make test", "make test-unit", "make setup", "make docs", "make down", "make clean")
NOT_AGAIN = (*NOT_HERE, "make demo", "source .venv/bin/activate")
# What the README shows and no page needs: left out where another checkout runs all of it.
SHOWN = (
    *(f"spark-submit jobs/{job}.py" for job in ("featurize", "relabel", "delete", "verify")),
    "printf ",
    "imagestrata lineage",
)
# What a page requires of its reader.
PREPARED = {"docs/how-to/from-dali-plugin.md": write_plugin_tables}


@dataclass
class Checkout:
    """The files of a clone, generated data in place of `/data`, and the ports of its servers."""

    folder: Path
    data: Path
    ports: Mapping[str, int]
    prepared: str | None = None

    def prepare(self, *, is_whole: bool) -> str:
        """Run the README once, with nothing but what `make demo` installs; return what its blocks print."""
        if self.prepared is None:
            lines = [line.partition(" #")[0].strip() for block in README.blocks for line in block.text.splitlines()]
            self.prepared = self.run(README, () if is_whole else [one for one in lines if one.startswith(SHOWN)])
        return self.prepared

    def run(self, page: Page, left_out: Iterable[str] = ()) -> str:
        """Run a page's blocks and return what they print. A failure names the block."""
        is_first = page.name == README.name
        replaced = {
            "9042": str(self.ports["cassandra"]),
            "8080": str(self.ports["service"]),
            "9108": str(self.ports["metrics"]),
            "7070": str(self.ports["s3"]),
            "make demo": f"make demo PORT={self.ports['cassandra']}",
            "make s3-up": f"make s3-up PORT={self.ports['s3']}",
            "/data/": f"{self.data}/",
        }
        script = documents.script(page, replaced=replaced, left_out=(*left_out, *(NOT_HERE if is_first else NOT_AGAIN)))
        with tempfile.TemporaryFile("w+") as out:
            command = ["timeout", "--kill-after=60", str(SECONDS_A_PAGE), "bash", "-c", script]
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=self._environment(with_extras=not is_first),
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            )
            out.seek(0)
            output = out.read()
        if done.returncode:
            number, last = list(documents.printed(page, output).items())[-1]
            block = page.blocks[number]
            pytest.fail(
                f"{page.name}, block {number}, line {block.line}: wanted exit code 0. "
                f"Found: {done.returncode}{' (it took too long)' if done.returncode == 124 else ''}.\n"
                f"{block.text}\nIt printed:\n{last[-6000:]}",
                pytrace=False,
            )
        return output

    def _environment(self, *, with_extras: bool) -> dict[str, str]:
        """The caller's environment: without this run's Python for the README, with all extras for other pages."""
        left_out = ("VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_PYTHON")
        found = {name: value for name, value in os.environ.items() if name not in left_out}
        # Caches of splits belong to the run.
        found["IMAGESTRATA_CACHE"] = str(self.folder / "build" / "cache")
        path = [one for one in found["PATH"].split(os.pathsep) if not one.startswith(str(ROOT / ".venv"))]
        if with_extras:  # the checkout has its own code and Spark configuration
            packages = Environment(self.folder).site_packages
            found |= {"PYTHONPATH": str(self.folder)} | spark_start.variables(conf_folder(packages))
            found |= {"PYSPARK_PYTHON": sys.executable, "VIRTUAL_ENV": str(OURS.parent)}
            path.insert(0, str(OURS))
        found["PATH"] = os.pathsep.join(path)
        return found


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """The files of this tree as in a clone. Its servers are ended."""
    folder = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    data = write_documented_data(tmp_path_factory.mktemp("data"))
    yield Checkout(folder, data, free_ports("cassandra", "service", "s3", "metrics"))
    for target in ("down", "s3-down"):
        subprocess.run(["make", target], cwd=folder, capture_output=True, check=False, timeout=120)
    shutil.rmtree(folder, ignore_errors=True)


def free_ports(*names: str) -> dict[str, int]:
    """A free port for each name."""
    sockets = [socket.socket() for _ in names]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = {name: one.getsockname()[1] for name, one in zip(names, sockets, strict=True)}
    for one in sockets:
        one.close()
    return found


@pytest.fixture(scope="module")
def readme(checkout: Checkout) -> str:
    """What the README's blocks print."""
    return checkout.prepare(is_whole=True)


def test_the_readme_prints_what_it_says(readme: str) -> None:
    assert not documents.unlike(README, readme)


def test_the_demo_ends_with_its_counts_as_json(readme: str, checkout: Checkout) -> None:
    line = next(line for line in readme.splitlines() if line.startswith('{"images"'))
    found = json.loads(line)
    page = checkout.folder / "build" / "demo" / "report.html"
    assert found.keys() == {
        *("images", "classes", "quarantined", "split_counts", "epoch_samples", "distinct_ids"),
        *("ingest_images_per_s", "loader_images_per_s", "report"),
    }
    assert (found["images"], found["classes"], found["quarantined"]) == (1797, 10, 0)
    assert found["split_counts"] == [1438, 359]
    assert found["epoch_samples"] == found["distinct_ids"] == 1438
    assert Path(found["report"]) == page
    text = page.read_text(encoding="utf-8")
    assert text.count("<figure>") == 64
    assert text.count('class="bar"') == 20


def test_the_demos_environment_is_enough_for_the_readme(readme: str, checkout: Checkout) -> None:
    assert (checkout.folder / "splits" / "digits").is_dir()
    packages = Environment(checkout.folder).site_packages
    assert (packages / "pyspark").is_dir()
    assert not (packages / "torch").exists()


@pytest.mark.parametrize("page", [page for page in OTHERS if page.is_run], ids=lambda page: page.name)
def test_a_page_runs_and_prints_what_it_says(page: Page, checkout: Checkout) -> None:
    checkout.prepare(is_whole=page.name < SECOND_CHECKOUT)
    if page.name in PREPARED:
        PREPARED[page.name](port=checkout.ports["cassandra"])
    output = checkout.run(page)
    assert not documents.unlike(page, output)


def test_a_page_of_the_manual_is_printed_without_a_cluster(readme: str, checkout: Checkout) -> None:
    for job in ("ingest", "split", "verify", "cache_rows", "shard", "featurize", "relabel", "delete"):
        python = checkout.folder / ".venv" / "bin" / "python"
        done = subprocess.run(
            [python, f"jobs/{job}.py", "--help"], cwd=checkout.folder, capture_output=True, text=True, check=True
        )
        assert "exit codes:" in done.stdout
        assert "examples" in done.stdout or "spark-submit jobs" in done.stdout
