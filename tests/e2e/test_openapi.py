"""schemathesis tests the dataset service against its whole OpenAPI description."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.dataset_servers import Server, token_of

# tus answers 412 without its version header, HTTP 411 without a length. For some lengths no disk is large enough: 507.
_CONFIG = """
hooks = "hooks.py"
[checks]
missing_required_header.expected-statuses = ["400", "401", "403", "411", "412", "415", "422"]
negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "409", "411", "412", "415", "422"]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "507"]
"""
_HOOKS = """
import schemathesis
schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")
"""


def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    token = token_of(tmp_path / "root", "write")
    (tmp_path / "schemathesis.toml").write_text(_CONFIG)
    (tmp_path / "hooks.py").write_text(_HOOKS)
    with Server(tmp_path / "root") as server:
        command = [Path(sys.executable).parent / "schemathesis", "run", f"{server.url}/openapi.json"]
        options = ["--checks", "all", "--max-examples", "10", "--seed", "1", "--no-color", "--continue-on-failure"]
        headers = ["-H", f"Authorization: Bearer {token}"]
        done = subprocess.run(
            [*command, *options, *headers], cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False
        )
    assert done.returncode == 0, done.stdout[-6000:]
    found = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert found is not None
    assert int(found[2]) > 300
