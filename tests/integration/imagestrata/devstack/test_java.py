"""Java reads its options."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

from imagestrata.devstack import java

SITE_PACKAGES = Path(sysconfig.get_path("purelib"))


def test_trust_store_is_read_by_java(tmp_path: Path) -> None:
    if not java.write_trust_store(tmp_path / "trusted.jks"):
        pytest.skip("this system names no certificates")
    keytool = java.find(SITE_PACKAGES).home / "bin" / "keytool"
    if not keytool.exists():
        pytest.skip("this Java has no keytool")
    command = [str(keytool), "-list", "-keystore", str(tmp_path / "trusted.jks"), "-storepass", "changeit"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert listed.stdout.count("trustedCertEntry") > 1
