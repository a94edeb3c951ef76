"""The set-up: what it finds, what it does once, and that plain spark-submit works in the environment that it makes."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from devstack import JavaError, SetupError, archive, jars, java, sparkconf, steps
from devstack.cassandra import Cassandra
from devstack.environment import Environment, Wanted, parse_args

ROOT = Path(__file__).resolve().parent.parent
SITE_PACKAGES = Path(sys.prefix) / "lib" / "python3.11" / "site-packages"


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


class TestJava:
    def test_java_home_comes_first(self, tmp_path: Path) -> None:
        mine = fake_java(tmp_path / "mine", "17.0.15")
        fake_java(tmp_path / "jvm" / "a", "17.0.1")
        assert java.find(env={"JAVA_HOME": str(mine)}, folders=[f"{tmp_path}/jvm/*"]) == mine

    def test_other_versions_are_passed_over(self, tmp_path: Path) -> None:
        other = fake_java(tmp_path / "jvm" / "a-25", "25.0.1")
        fake_java(tmp_path / "jvm" / "b-8", "1.8.0_402")
        right = fake_java(tmp_path / "jvm" / "c", "17.0.9")
        assert java.find(env={"JAVA_HOME": str(other)}, folders=[f"{tmp_path}/jvm/*"]) == right

    def test_path_and_then_the_wheel(self, tmp_path: Path) -> None:
        wheel = fake_java(java.wheel_home(tmp_path / "site-packages"), "17.0.9")
        assert java.find(tmp_path / "site-packages", env={}, folders=[]) == wheel
        on_path = fake_java(tmp_path / "jdk", "17.0.2")
        env = {"PATH": str(on_path / "bin")}
        assert java.find(tmp_path / "site-packages", env=env, folders=[]) == on_path

    def test_version_is_asked_where_no_release_file_stands(self, tmp_path: Path) -> None:
        home = fake_java(tmp_path / "jdk", "17")
        (home / "release").unlink()
        (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"17.0.3\" 2022-04-19' >&2\n")
        assert java.major_version(home) == 17

    def test_none_is_one_clear_line(self, tmp_path: Path) -> None:
        fake_java(tmp_path / "jvm" / "new", "25")
        with pytest.raises(JavaError, match=r"wanted a Java 17 .* Found: .*new is a 25\. .*JAVA_HOME") as error:
            java.find(tmp_path, env={}, folders=[f"{tmp_path}/jvm/*"])
        assert "\n" not in str(error.value)
        with pytest.raises(JavaError, match="Found: no Java at all"):
            java.find(tmp_path, env={}, folders=[])

    def test_trust_store_is_read_by_java(self, tmp_path: Path) -> None:
        if not java.write_trust_store(tmp_path / "trusted.jks"):
            pytest.skip("this system names no certificates")
        keytool = java.find(SITE_PACKAGES) / "bin" / "keytool"
        if not keytool.exists():
            pytest.skip("this Java has no keytool")
        command = [str(keytool), "-list", "-keystore", str(tmp_path / "trusted.jks"), "-storepass", "changeit"]
        listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert listed.stdout.count("trustedCertEntry") > 1


class TestJars:
    def test_lock_holds_both_sets_and_no_address(self) -> None:
        locked = jars.read_lock()
        assert {jar.group for jar in locked} == {"cassandra", "spark"}
        for group, root in jars.ROOTS.items():
            assert root in {jar.coordinates for jar in locked if jar.group == group}
        assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in locked)
        assert "//" not in jars.LOCK_FILE.read_text()

    def test_cache_holds_what_the_lock_says(self) -> None:
        for jar in jars.read_lock():
            data = (jars.folder() / jar.group / jar.file_name).read_bytes()
            assert hashlib.sha256(data).hexdigest() == jar.sha256, jar.coordinates

    def test_wrong_bytes_are_never_published(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        right = jars.Jar("spark", "org.reactivestreams", "reactive-streams", "1.0.3", "", "0" * 64)
        monkeypatch.setattr(jars, "read_lock", lambda: [right])
        # The repository is a folder with other bytes under the right name.
        place = tmp_path / "repository/org/reactivestreams/reactive-streams/1.0.3"
        place.mkdir(parents=True)
        (place / right.file_name).write_bytes(b"something else")
        monkeypatch.setenv("IMAGESTRATA_MAVEN_REPOSITORY", (tmp_path / "repository").as_uri() + "/")
        step = steps.Step("jars", sys.stderr)
        with pytest.raises(SetupError, match=r"reactive-streams-1\.0\.3\.jar with sha256 0000.*Found: "):
            jars.fetch(java.find(SITE_PACKAGES), jars.ivy_jar(SITE_PACKAGES), step)
        assert not jars.folder().exists()

    def test_missing_jars_say_what_to_do(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        with pytest.raises(SetupError, match="make setup"):
            jars.paths("spark")


class TestEnvironment:
    def checkout(self, folder: Path) -> Environment:
        (folder / "devstack").mkdir()
        for name in ("pyproject.toml", "requirements.lock", "devstack/installer.lock", "devstack/build.lock"):
            shutil.copy(ROOT / name, folder / name)
        environment = Environment(folder)
        (environment.folder / "bin").mkdir(parents=True)
        environment.python.symlink_to(sys.executable)
        return environment

    def stamp(self, environment: Environment, **changes: object) -> None:
        record = {"extras": ["spark"], "groups": ["dev"], "root": str(environment.root)}
        record["fingerprint"] = environment.fingerprint()
        environment.stamp.write_text(json.dumps(record | changes))

    def test_what_was_asked_for_earlier_is_ready_and_stays(self, tmp_path: Path) -> None:
        environment = self.checkout(tmp_path)
        self.stamp(environment)
        before, current = environment.installed()
        assert current
        assert Wanted(frozenset({"spark"})) <= before
        assert not Wanted(frozenset({"loader"})) <= before
        assert (before | Wanted(frozenset({"loader"}))).extras == {"spark", "loader"}

    def test_lock_that_changed_or_checkout_that_moved_is_not_ready(self, tmp_path: Path) -> None:
        environment = self.checkout(tmp_path)
        self.stamp(environment, root="/elsewhere")
        assert not environment.installed()[1]
        self.stamp(environment)
        with (tmp_path / "requirements.lock").open("a") as lock:
            lock.write("# changed\n")
        before, current = environment.installed()
        assert not current
        assert before.extras == {"spark"}

    def test_interrupted_set_up_is_not_ready(self, tmp_path: Path) -> None:
        environment = self.checkout(tmp_path)
        assert environment.installed() == (Wanted(), False)
        environment.stamp.write_text('{"extras": ["spa')
        assert environment.installed() == (Wanted(), False)

    def test_set_up_twice_is_instant(self) -> None:
        asked, current = Environment().installed()
        if not current:
            pytest.skip("this environment was not made by the set-up, or the locks changed since")
        options = [f"--extra={name}" for name in asked.extras] + [f"--group={name}" for name in asked.groups]
        command = [sys.executable, "-m", "devstack.environment", *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
        lines = done.stderr.splitlines()
        assert len(lines) == 6
        assert all(re.search(r" ready .* \d\.\d s$", line) for line in lines), done.stderr

    def test_bad_arguments_are_refused(self) -> None:
        known = {"extras": {"spark"}, "groups": {"dev"}}
        assert parse_args(["--extra", "spark", "--group", "dev"], known).extra == ["spark"]
        with pytest.raises(SystemExit) as refused:
            parse_args(["--extra", "nonsense"], known)
        assert refused.value.code == 2

    def test_everything_installed_stands_in_the_lock(self) -> None:
        if not Environment().stamp.exists():
            pytest.skip("this environment was not made by the set-up")
        locked = set(re.findall(r"^([a-z0-9.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
        names = {name for name, _ in locked}
        found = {
            (re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(), one.version)
            for one in metadata.distributions(path=[str(SITE_PACKAGES)])
        }
        # What Python's venv and the set-up itself bring.
        others = {pair for pair in found if pair[0] not in {"imagestrata", "pip", "setuptools", "uv"}}
        assert {pair for pair in others if pair[0] in names} <= locked
        assert others <= locked

    def test_locks_hold_hashes_and_no_addresses(self) -> None:
        for name in ("requirements.lock", "devstack/installer.lock", "devstack/build.lock"):
            text = (ROOT / name).read_text()
            assert "//" not in text
            for block in re.split(r"\n(?=\S)", text.strip()):
                assert "--hash=sha256:" in block, block


class TestSparkSubmit:
    SCRIPT = """
import sys
from pyspark.sql import SparkSession

def where(rows):
    import etl, schemas
    import os
    for _ in rows:
        yield (os.getpid(), os.getppid(), etl.__name__ + schemas.__name__)

if __name__ == "__main__":
    spark = SparkSession.builder.appName("set-up").getOrCreate()
    import etl, schemas
    found = spark.sparkContext.parallelize(range(4), 4).mapPartitions(where).collect()
    table = spark.read.format("org.apache.spark.sql.cassandra").options(keyspace="set_up", table="t").load()
    rows = sorted(table.collect())
    zone = spark.conf.get("spark.sql.session.timeZone")
    print("RESULT", spark.sparkContext.master, zone, {name for _, _, name in found}, [tuple(row) for row in rows])
    spark.stop()
"""

    def test_finds_connector_defaults_and_packages_on_executors_of_their_own(
        self, cassandra: Cassandra, tmp_path: Path
    ) -> None:
        with cassandra.session() as cql:
            cql.execute(
                "CREATE KEYSPACE IF NOT EXISTS set_up WITH replication = "
                "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"
            )
            cql.execute("CREATE TABLE IF NOT EXISTS set_up.t (id int PRIMARY KEY, name text)")
            for number, name in ((1, "one"), (2, "two")):
                cql.execute("INSERT INTO set_up.t (id, name) VALUES (%s, %s)", (number, name))
        script = tmp_path / "a script.py"
        script.write_text(self.SCRIPT)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK", "JAVA"))}
        env["PATH"] = f"{sys.prefix}/bin:{env['PATH']}"
        env.pop("PYTHONPATH", None)
        # Compiled for a quick start: four Javas live for seconds.
        env["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1"
        command = ["spark-submit", "--master", "local-cluster[2,1,1024]", "--driver-memory", "512m"]
        command += ["--conf", f"spark.cassandra.connection.port={cassandra.port}"]
        done = subprocess.run(
            [*command, str(script)], cwd="/", env=env, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert "RESULT local-cluster[2,1,1024] UTC {'etlschemas'} [(1, 'one'), (2, 'two')]" in done.stdout
        # The user reads the job's lines: Spark's start-up remarks are kept away.
        remarks = [line for line in done.stderr.splitlines() if "WARN" in line or "INFO" in line]
        assert remarks == []


class TestSparkConfiguration:
    def test_written_once_and_again_with_the_demos_defaults(self, tmp_path: Path) -> None:
        (tmp_path / "pyspark").mkdir()
        python = tmp_path / 'a "b" $c' / "python"

        def write(extra: dict[str, str] | None = None) -> bool:
            return sparkconf.write(
                extra,
                site_packages=tmp_path,
                java_home=tmp_path / "my java",
                python=python,
                demo_defaults=tmp_path / "demo.conf",
            )

        assert write()
        assert not write()
        assert write({"spark.imagestrata.source": "/data/my tree"})
        text = (tmp_path / "pyspark/conf/spark-defaults.conf").read_text()
        assert (
            text.index("spark.master") < text.index("spark.jars") < text.index("spark.imagestrata.source /data/my tree")
        )
        command = ["bash", "-c", '. pyspark/conf/spark-env.sh; printf "%s\\n" "$PYSPARK_PYTHON" "$JAVA_HOME"']
        told = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, timeout=20, check=True)
        assert told.stdout.splitlines() == [str(python), str(tmp_path / "my java")]
        mine = subprocess.run(
            command,
            cwd=tmp_path,
            env={"PYSPARK_PYTHON": "mine"},
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        assert mine.stdout.splitlines()[0] == "mine"

    def test_no_script_is_left_where_spark_could_not_read_it(self, tmp_path: Path) -> None:
        place = tmp_path / "with a space"
        (place / "pyspark").mkdir(parents=True)
        assert sparkconf.write(
            site_packages=place, java_home=place, python=place / "python", demo_defaults=place / "demo.conf"
        )
        assert sorted(file.name for file in (place / "pyspark" / "conf").iterdir()) == [
            "log4j2.properties",
            "spark-defaults.conf",
        ]
        text = (place / "pyspark" / "conf" / "spark-defaults.conf").read_text()
        assert f"spark.pyspark.python {place}/python\n" in text

    def test_without_pyspark_says_what_to_do(self, tmp_path: Path) -> None:
        with pytest.raises(SetupError, match="make setup"):
            sparkconf.write(site_packages=tmp_path, java_home=tmp_path, python=tmp_path)


class TestArchive:
    def test_same_files_same_bytes(self, tmp_path: Path) -> None:
        for package in archive.PACKAGES:
            (tmp_path / package / "__pycache__").mkdir(parents=True)
            (tmp_path / package / "__init__.py").write_text("")
            (tmp_path / package / "__pycache__" / "x.pyc").write_text("")
        (tmp_path / "schemas" / "tables.cql").write_text("CREATE TABLE")
        assert archive.write(tmp_path / "build" / "a.zip", tmp_path) == 5
        (tmp_path / "etl" / "__init__.py").touch()
        archive.write(tmp_path / "build" / "b.zip", tmp_path)
        assert (tmp_path / "build/a.zip").read_bytes() == (tmp_path / "build/b.zip").read_bytes()
        with zipfile.ZipFile(tmp_path / "build" / "a.zip") as written:
            assert "schemas/tables.cql" in written.namelist()


class TestMakefile:
    def make(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["make", "-C", str(ROOT), "--no-print-directory", *arguments],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def test_help_lists_every_target(self) -> None:
        text = (ROOT / "Makefile").read_text()
        targets = set(re.findall(r"^([a-zA-Z][\w.-]*):(?!=)", text, re.MULTILINE))
        phony = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())
        listed = {line.split()[0] for line in self.make().stdout.splitlines() if line.startswith("  ")}
        assert listed == targets == phony
        assert {"demo", "train-demo", "test", "test-all", "check", "up", "down", "status", "clean-data"} <= listed

    def test_another_python_is_refused_in_one_line(self, tmp_path: Path) -> None:
        done = self.make("setup", "PYTHON=")
        assert done.returncode != 0
        assert "error: wanted Python 3.11" in done.stderr

    def test_data_is_passed_on_with_its_spaces(self) -> None:
        done = self.make("--dry-run", "demo", "DATA=/my data/tree")
        assert '-m demo --data "/my data/tree"' in done.stdout
