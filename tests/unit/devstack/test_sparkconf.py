"""Spark's configuration in the environment."""

import subprocess
from pathlib import Path

import pytest

from devstack import SetupError, sparkconf


def test_written_once_and_again_with_the_demos_defaults(tmp_path: Path) -> None:
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
    assert text.index("spark.master") < text.index("spark.jars") < text.index("spark.imagestrata.source /data/my tree")
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


def test_no_script_is_left_where_spark_could_not_read_it(tmp_path: Path) -> None:
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


def test_without_pyspark_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="make setup"):
        sparkconf.write(site_packages=tmp_path, java_home=tmp_path, python=tmp_path)
