"""An audit counts only if it covers every package."""

import pytest

from imagestrata.devstack import SetupError
from imagestrata.devstack.packaging.inventory import judge

OURS = {"name": "imagestrata", "skip_reason": "not on PyPI"}


def test_each_vulnerability_is_a_line_with_its_fix() -> None:
    issues = [{"id": "CVE-1", "fix_versions": ["2", "3"]}, {"id": "CVE-2", "fix_versions": []}]
    found = [OURS, {"name": "a", "version": "1", "vulns": issues}, {"name": "b", "version": "1", "vulns": []}]
    assert judge(found) == ["a 1: CVE-1, fixed in 2, 3", "a 1: CVE-2, fixed in no version"]
    assert judge([{"name": "b", "version": "1", "vulns": []}]) == []


def test_packages_that_were_not_audited_are_a_failure() -> None:
    audited = {"name": "b", "version": "1", "vulns": []}
    with pytest.raises(SetupError, match=r"does not know 1 \(a\)"):
        judge([audited, {"name": "a", "skip_reason": "not found"}])
    with pytest.raises(SetupError, match="nothing was audited"):
        judge([])
