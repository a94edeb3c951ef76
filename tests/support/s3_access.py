"""The environment variables for an S3 server."""

import pytest

from imagestrata.devstack.servers.s3 import S3


def use(server: S3, monkeypatch: pytest.MonkeyPatch, *, secret: str | None = None) -> None:
    """Put a server and its keys into the environment, as users do."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret or server.secret_key)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
