"""The accepted hosts of a request."""

import pytest

from imagestrata.service.server.hosts import Hosts, authority


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("localhost:8080", ("localhost", "8080")),
        ("LocalHost.", ("localhost", "")),
        ("127.0.0.1:", ("127.0.0.1", "")),
        ("[::1]:8080", ("[::1]", "8080")),
        ("[0:0:0:0:0:0:0:1]", ("[::1]", "")),
        ("datasets.example.:443", ("datasets.example", "443")),
        ("", None),
        ("a b", None),
        ("a@b", None),
        ("a,b", ("a,b", "")),
        ("::1", None),
        ("a/b", None),
        ("a:port", None),
    ],
)
def test_a_host_header_is_split_and_compared_in_one_form(text: str, found: tuple[str, str] | None) -> None:
    assert authority(text) == found


def test_a_local_service_has_its_own_names_only() -> None:
    hosts = Hosts(["localhost", "127.0.0.1", "[::1]"], given=["Datasets.Example"])
    allowed = ("localhost", "127.0.0.1", "[::1]", "datasets.example", "10.0.0.1", "[fe80::1]", "evil.example", "", "db")
    assert [host in hosts for host in allowed] == [True, True, True, True, False, False, False, False, False]


def test_a_service_for_others_has_what_no_stranger_can_bind_to_it() -> None:
    hosts = Hosts(["localhost"], is_local=False)
    asked = ("10.0.0.1", "[fe80::1]", "datasets", "localhost", "evil.example", "10.0.0.1.evil.example")
    assert [host in hosts for host in asked] == [True, True, True, True, False, False]
