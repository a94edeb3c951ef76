"""Definitions in TOML files: what is refused, before a registry is read."""

from pathlib import Path

import pytest

from etl.catalog.definitions import read_definitions
from etl.errors import SourceError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[view]]\nname = 'x'", r"Wanted [[feature_view]], [[feature_service]], [[dataset]] in"),
        ("[[feature_view]]\nname = 'x'\nsource = 'python:m:f'\nfield = {}", "field, which it does not have"),
        (
            "[[feature_view]]\nname = 'phash'\nsource = 'builtin:phash'\nttl = 5",
            "a ttl. Feature views have no ttl, because",
        ),
        ("[[feature_view]]\nname = 'x'\nsource = 'python:m:f'\nttl = '30d'", "Remove it, and make a new version to"),
        ("[[feature_view]]\nname = 'phash'\nsource = 'builtin:phash'\nfields = {}", "fields of a built-in view"),
        ("[[feature_view]]\nname = 'x'\nsource = 'builtin:x'", "x from builtin:x. Built-in views are size@v1, "),
        ("[[feature_view]]\nname = 'x'\nsource = 'sql:a'", "sql:a. Define it with featurize.py --features x=sql:a"),
        ("[[feature_view]]\nname = 'x'\nsource = 'onnx:m'", "onnx:m. Define it with featurize.py --features x=onnx:m"),
        ("[[feature_view]]\nname = 'x'\nsource = 'labels:a.csv'", "labels:a.csv. Add versions of a label view with"),
        ("[[feature_view]]\nname = 'x'\nsource = 'f'", "Wanted the source of a feature view: builtin:NAME, "),
        ("[[feature_service]]\nname = 'x'\nviews = ['phash']", "names versions of views"),
        ("[[dataset]]\nname = 'digits'\n[[dataset]]\nname = 'digits'", "once. Found: in"),
        ("[[dataset]]\nname = 3", "a name, owner or tag that is not text"),
        ("[[dataset]]", "no 'name'"),
        ("nonsense", "Wanted definitions in"),
    ],
)
def test_wrong_definitions_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SourceError) as refused:
        read_definitions(str(tmp_path))
    assert message in str(refused.value)
