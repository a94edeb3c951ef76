"""Manifests of splits, shards and metadata caches that cannot be read are refused in the same words."""

import pytest

from schemas import FormatVersionError, SchemaError, SplitManifest
from schemas.cache import CacheManifest
from schemas.shards import ShardManifest

KINDS = [(SplitManifest, "split manifest"), (ShardManifest, "manifest of shards"), (CacheManifest, "metadata cache")]


@pytest.mark.parametrize(("kind", "what"), KINDS)
def test_damaged_manifests_are_refused_with_what_is_wrong(kind: type[SplitManifest], what: str) -> None:
    for text, message in [
        ("nonsense", rf"^Wanted a {what} at HERE\. Found: no JSON object with a format \(JSONDecodeError"),
        ("[]", rf"^Wanted a {what} at HERE\. Found: no JSON object with a format \(TypeError"),
        ("{}", rf"^Wanted a {what} at HERE\. Found: no JSON object with a format \(KeyError\('format'\)\)"),
        ('{"format": "1"}', rf"^Wanted a {what} at HERE\. Found: format '1'$"),
        ('{"format": 0}', rf"^Wanted a {what} at HERE\. Found: format 0$"),
        ('{"format": 1}', rf"^Wanted a whole {what} at HERE\. Found: one that is damaged \(KeyError\("),
    ]:
        with pytest.raises(SchemaError, match=message):
            kind.from_json(text, place="HERE")
    newer = rf"^Wanted a {what} of format 1 or older at HERE\. Found: format 2\. It was written by a newer imagestrata"
    with pytest.raises(FormatVersionError, match=newer):
        kind.from_json('{"format": 2}', place="HERE")
