"""The embedded S3 server before it starts: bad ports and settings."""

import os
import socket
from pathlib import Path

import pytest

from imagestrata.devstack import NodeError, PortError
from imagestrata.devstack.commands import main
from imagestrata.devstack.servers.s3 import S3


def test_bad_ports_and_damaged_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="1024 to 65535"):
        S3(tmp_path, port=80)
    with pytest.raises(SystemExit) as refused:
        main(["s3-up", "--port", "80"])
    assert refused.value.code == 2
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(NodeError, match=r"settings\.json"):
        S3(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as stranger, pytest.raises(PortError, match=str(os.getpid())):
        S3(tmp_path / "new", port=stranger.getsockname()[1]).start()
