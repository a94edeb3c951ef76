"""The doctor's findings and advice."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from imagestrata.devstack import doctor
from imagestrata.devstack.servers import ports


def test_versions_are_compared_with_what_the_package_wants() -> None:
    other = """numpy>=999; python_version < '3' and extra == "x\""""
    assert doctor.packages(["numpy>=1.2", 'nothing-such>=1; extra == "x"', other]).state == "ok"
    for wanted, found in (
        ("numpy>=999", "instead of >=999"),
        ("pytest==1.0", "instead of ==1.0"),
        ("no-such>=1", "missing"),
        ("numpy<999,>=998", "instead of <999,>=998"),
        ("""numpy>=999; python_version >= '3' and extra == "x\"""", "instead of >=999"),
    ):
        check = doctor.packages([wanted])
        assert check.state == "error"
        assert found in check.found
        assert check.advice


@pytest.mark.parametrize(("off", "state"), [(1, "ok"), (-60, "warning"), (3600, "error")])
def test_clocks_are_compared(off: float, state: str) -> None:
    assert doctor.clock("S3", 1.8e9, 1.8e9 + off).state == state


@pytest.mark.parametrize(("now", "state"), [(0.0, "error"), (1.8e9, "ok"), (9e9, "error")])
def test_an_absurd_clock_is_an_error(now: float, state: str) -> None:
    assert doctor.clock("", now, None).state == state


def test_little_disk_and_memory_are_told() -> None:
    assert [doctor.disk(free).state for free in (5e8, 5e9, 5e10)] == ["error", "warning", "ok"]
    assert [doctor.memory(free).state for free in (1e9, 1e10)] == ["warning", "ok"]


def test_a_port_is_free_or_ours_or_somebody_s() -> None:
    import os
    import socket

    with socket.create_server(("127.0.0.1", 0)) as held:
        number = held.getsockname()[1]
        assert doctor.port(number, [os.getpid()]).found == "used by our server"
        assert (found := doctor.port(number, [])).state == "warning"
        assert str(os.getpid()) in found.found
    assert doctor.port(number, []).state == "ok"


def test_only_a_server_that_is_named_must_answer() -> None:
    (number,) = ports.free(["127.0.0.1"], 1)
    address = f"http://127.0.0.1:{number}"
    (unnamed,) = doctor.web("S3", None, "/", "AWS_ENDPOINT_URL", "start")
    assert (unnamed.state, unnamed.found) == ("skipped", "not configured, not checked")
    assert [check.state for check in doctor.web("S3", address, "/", "AWS_ENDPOINT_URL", "start")] == ["error"]
    assert [check.state for check in doctor.cassandra("127.0.0.1", number)] == ["error"]


@pytest.mark.parametrize(
    ("states", "last", "code"),
    [
        (["ok", "skipped"], "0 errors, 0 warnings", 0),
        (["ok", "warning"], "0 errors, 1 warning", 0),
        (["error", "warning", "warning"], "1 error, 2 warnings", 1),
    ],
)
def test_the_last_line_counts_errors_and_warnings(
    states: list[doctor.State],
    last: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(doctor, "checks", lambda args: (doctor.Check("x", state, "y") for state in states))
    assert doctor.main([]) == code
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_a_server_with_a_wrong_clock_is_told_and_the_exit_code_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Late(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(200)
            self.send_header("Date", "Thu, 01 Jan 2015 00:00:00 GMT")
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Late) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(doctor, "cassandra", lambda hosts, port: iter(()))
        assert doctor.main(["--url", f"http://127.0.0.1:{server.server_port}", "--json"]) == 1
        server.shutdown()
    told = {check["name"]: check["state"] for check in json.loads(capsys.readouterr().out)}
    assert told["dataset service"] == "ok"
    assert told["clock of dataset service"] == "error"
