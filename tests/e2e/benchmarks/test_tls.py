"""The rows of the benchmark of reading over TLS, of runs that are made up; nothing here is timed."""

import ssl
from pathlib import Path

import pytest

from benchmarks.harness.courses import Course
from benchmarks.harness.loader_stage import Run
from benchmarks.tls.__main__ import FIGURES, make_identity, rows_of
from imagestrata.devstack.servers.delay import Carried


def run_of(rate: float, *, cpu_ms: float) -> Run:
    times = [100 * number / rate for number in range(1, 7)]
    cpu = [100 * cpu_ms / 1e3 * number for number in range(1, 7)]
    answer = {"stats": {"connections": 15}}
    return Run(Course(times, times, [100] * 6, cpu), answer, 0.3, Carried(16, 1, 1, 0, 0.12))


RUNS = {
    ("cassandra-driver", 0.0): [run_of(1000, cpu_ms=0.7)] * 3,
    ("cassandra-driver", 0.15): [run_of(950, cpu_ms=0.8)] * 3,
    ("acsylla", 0.0): [run_of(2000, cpu_ms=0.2)] * 3,
    ("acsylla", 0.15): [run_of(1900, cpu_ms=0.25)] * 3,
}


def test_each_client_is_compared_with_itself_and_with_the_other() -> None:
    rows = rows_of(RUNS, void="")
    assert [rows[number].value for number in FIGURES] == pytest.approx([0.95, 0.95, 0.5, 0.5, 0.8, 0.25])
    assert all(row.met for row in rows.values())
    # An image costs 0.8 ms here, 0.5 ms at the server and 0.2 ms at the proxy.
    assert "950 images/s, CPU ms an image 0.80 client + 0.50 server + 0.20 proxy, 1.4 cores busy of" in rows[1].note
    assert "15 connections" in rows[1].note


def test_void_runs_have_no_value() -> None:
    assert rows_of(RUNS, void="the proxy is slow")[1].value is None


def test_the_certificate_is_for_the_address_that_is_read(tmp_path: Path) -> None:
    made = make_identity(tmp_path)
    context = ssl.create_default_context(cafile=made.certificate)
    assert len(context.get_ca_certs()) == 1
    options = made.options()["client_encryption_options"]
    assert isinstance(options, dict)
    assert "BEGIN PRIVATE KEY" in options["ssl_context_factory"]["parameters"]["private_key"]
