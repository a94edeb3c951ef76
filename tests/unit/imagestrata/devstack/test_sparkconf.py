"""Spark's configuration in the environment."""

import subprocess
from pathlib import Path

import pytest

from imagestrata.devstack import SetupError, sparkconf


def install_pyspark(site_packages: Path) -> None:
    """An installed pyspark, as far as the configuration reads it."""
    (site_packages / "pyspark" / "jars").mkdir(parents=True)
    (site_packages / "pyspark" / "jars" / "scala-library-2.12.18.jar").touch()


def shell(folder: Path, script: str, *words: str, env: dict[str, str]) -> str:
    """What a script of bash prints in a folder, with nothing else in its environment."""
    command = ["bash", "-c", script, "bash", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=True).stdout


def test_defaults_are_rewritten_only_when_they_change(tmp_path: Path) -> None:
    install_pyspark(tmp_path)
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
    assert "Issue communicating with driver in heartbeater" in (tmp_path / "pyspark/conf/log4j2.properties").read_text()
    assert write({"spark.imagestrata.source": "/data/my tree"})
    text = (tmp_path / "pyspark/conf/spark-defaults.conf").read_text()
    assert text.index("spark.master") < text.index("spark.jars") < text.index("spark.imagestrata.source /data/my tree")
    script = '. pyspark/conf/spark-env.sh; printf "%s\\n" "$PYSPARK_PYTHON" "$JAVA_HOME"'
    assert shell(tmp_path, script, env={}).splitlines() == [str(python), str(tmp_path / "my java")]
    assert shell(tmp_path, script, env={"PYSPARK_PYTHON": "mine"}).splitlines()[0] == "mine"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [({}, "C.UTF-8"), ({"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, "C.UTF-8"), ({"LANG": "de_DE.utf8"}, "")],
)
def test_java_reads_names_as_utf_8_in_each_locale(tmp_path: Path, given: dict[str, str], wanted: str) -> None:
    install_pyspark(tmp_path)
    sparkconf.write(site_packages=tmp_path, java_home=tmp_path, python=tmp_path, demo_defaults=tmp_path / "demo.conf")
    assert shell(tmp_path, ". pyspark/conf/spark-env.sh; echo $LC_ALL", env=given).strip() == wanted


def test_no_env_script_is_written_where_spark_cannot_read_it(tmp_path: Path) -> None:
    place = tmp_path / "with a space"
    install_pyspark(place)
    assert sparkconf.write(
        site_packages=place, java_home=place, python=place / "python", demo_defaults=place / "demo.conf"
    )
    assert sorted(file.name for file in (place / "pyspark" / "conf").iterdir()) == [
        "log4j2.properties",
        "spark-defaults.conf",
    ]
    text = (place / "pyspark" / "conf" / "spark-defaults.conf").read_text()
    assert f"spark.pyspark.python {place}/python\n" in text


@pytest.mark.parametrize("modules", ["java.base jdk.incubator.vector", "java.base"])
@pytest.mark.parametrize("name", ["env", "with a space"])
def test_spark_starts_on_a_java_of_few_modules(tmp_path: Path, modules: str, name: str) -> None:
    install_pyspark(tmp_path / name)
    home = tmp_path / "a java's home"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(f'JAVA_VERSION="17.0.9"\nMODULES="{modules}"\n')
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    (home / "bin" / "java").chmod(0o755)
    sparkconf.write(site_packages=tmp_path / name, java_home=home, python=tmp_path, demo_defaults=tmp_path / "none")
    wanted = ["--add-modules=jdk.incubator.vector", "-Dname=two words", "Main"]
    # Spark's scripts cannot read the file from a path with a space; the demo sets the same Java itself.
    env = {"JAVA_HOME": str(sparkconf.java_for_spark(home, site_packages=tmp_path / name))}
    script = '[ ! -e pyspark/conf/spark-env.sh ] || . pyspark/conf/spark-env.sh; "$JAVA_HOME/bin/java" "$@"'
    assert shell(tmp_path / name, script, *wanted, env=env) == "".join(
        f"<{one}>" for one in wanted if modules.endswith("vector") or one != wanted[0]
    )


def test_missing_pyspark_is_reported_with_advice(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="make setup"):
        sparkconf.write(site_packages=tmp_path, java_home=tmp_path, python=tmp_path)
