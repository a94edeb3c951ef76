"""The embedded S3 server: its keys, and its commands."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.commands import main
from imagestrata.devstack.servers import ports
from imagestrata.devstack.servers.s3 import S3
from tests.support.waiting import until


def test_keys_are_kept_in_a_private_file(s3: S3) -> None:
    settings = s3.folder / "settings.json"
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    pid = s3.pid
    assert pid is not None
    assert s3.secret_key.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert not ports.is_held(s3.port, "127.0.0.2")  # only on the first loopback address


def test_the_command_line_starts_reports_and_stops_the_server(
    s3: S3, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", str(tmp_path / "with space")]
    assert main(["s3-status", *data]) == 1
    assert main(["s3-up", "--port", str(s3.port), *data]) == 1
    assert f"versitygw (pid {s3.pid}) uses it" in capsys.readouterr().err
    port = ports.free(["127.0.0.1"], 1)[0]
    try:
        assert main(["s3-up", "--port", str(port), "--bucket", "demo", *data]) == 0
        shown = capsys.readouterr().out
        assert f"AWS_ENDPOINT_URL=http://127.0.0.1:{port}" in shown
        server = S3(tmp_path / "with space")
        assert server.secret_key not in shown
        storage = Storage("s3://demo", S3Access(server.endpoint, server.access_key, server.secret_key))
        storage.write_bytes("a", b"1")
        with ThreadPoolExecutor(2) as pool:  # concurrently: one starts it, both find it running
            assert list(pool.map(main, [["s3-up", *data]] * 2)) == [0, 0]
        pid = server.pid
        assert pid is not None
        os.kill(pid, 9)
        until(lambda: not server.is_up())
        assert main(["s3-up", *data]) == 0
        assert storage.read_bytes("a") == b"1"
        assert main(["s3-status", *data]) == 0
        assert main(["s3-down", *data]) == 0
        assert main(["s3-down", *data]) == 0
    finally:
        assert main(["s3-clean-data", *data]) == 0
    assert not (tmp_path / "with space").exists()
