"""Errors of an unreachable address name the cause in time."""

import socket

import pytest

import loader
from tests.support.access_checks import authority, library, read, split_of
from tests.support.certificates import Authority

__all__ = ["authority", "library"]  # fixtures

pytestmark = pytest.mark.usefixtures("library")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> loader.Split:
    return split_of("safe.data", tmp_path_factory.mktemp("split"))


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_an_unreachable_host_or_port_is_named(authority: Authority, split: loader.Split, encrypted: bool) -> None:
    access = loader.Access(ca=authority.ca) if encrypted else loader.Access()
    with pytest.raises(loader.UnreachableError, match=r"nowhere\.invalid port 9042\. Found: its name does not resolve"):
        read(split, hosts="nowhere.invalid", access=access)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(loader.UnreachableError, match=rf"port {port}\. Found: nothing listens there"):
        read(split, hosts="127.0.0.1", port=port, access=access)
    both = rf"127\.0\.0\.1, nowhere\.invalid port {port}\. Found: 127\.0\.0\.1: nothing .* nowhere\.invalid: its name"
    with pytest.raises(loader.UnreachableError, match=both):
        read(split, hosts=["127.0.0.1", "nowhere.invalid"], port=port, access=access)
