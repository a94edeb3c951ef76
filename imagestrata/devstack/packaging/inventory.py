"""List what the package installs: `make inventory` writes build/inventory.

    sbom.json       every package with version, license and dependencies (CycloneDX)
    licenses.md     the same packages, as a table of licenses
    audit.json      their known vulnerabilities, as PyPI's advisory service answers

The packages are those of all extras for running (not cuda130, which takes cuda120's place, and not notebooks), in the
versions of requirements.lock. Exit codes: 0 = all three were written and no vulnerability is known, 1 = a
vulnerability is known, or the service did not answer for every package, or a tool failed.
"""

import json
import sys
from pathlib import Path
from typing import Any

from formats.command_line import command
from formats.origin import VERSION
from imagestrata.devstack import SetupError
from imagestrata.devstack.environment import Environment

EXTRAS = ("spark", "cuda120", "train", "lightning", "metrics", "looks", "lineage", "shards", "service")


def write(environment: Environment, folder: Path) -> None:
    """Write the SBOM and the licenses, and leave the installed packages in `folder`/env. Raises SetupError."""
    python = folder / "env" / "bin" / "python"
    folder.mkdir(parents=True, exist_ok=True)
    environment.run("uv", "venv", "--clear", "--quiet", "--python", environment.python, folder / "env")
    install = ("pip", "install", "--python", python, "--system-certs", "--constraints", "requirements.lock")
    environment.run("uv", *install, f".[{','.join(EXTRAS)}]")
    sbom = ("environment", "--pyproject", "pyproject.toml", "--mc-type", "library", "--output-reproducible")
    bom = json.loads(environment.run("cyclonedx-py", *sbom, folder / "env"))
    bom["metadata"]["component"]["version"] = VERSION  # not in pyproject.toml, where the tool looks
    (folder / "sbom.json").write_text(json.dumps(bom, indent=2) + "\n", encoding="utf-8")
    table = ("--python", python, "--from", "mixed", "--format", "markdown", "--with-urls")
    environment.run("pip-licenses", *table, "--output-file", folder / "licenses.md")


def audit(environment: Environment, folder: Path) -> list[str]:
    """Return a line for each known vulnerability of the packages in `folder`/env, and keep the answer in audit.json.
    Raises `SetupError` if the service did not answer for all packages.
    """
    packages = Environment(folder=str(folder / "env")).site_packages
    # It exits with 1 for vulnerabilities and for failures alike, and with 0 where it could not ask for any package.
    options = ("--path", packages, "--format", "json", "--progress-spinner", "off")
    answer = environment.run("pip-audit", *options, check=False)
    try:
        found = json.loads(answer)["dependencies"]
    except (ValueError, KeyError) as error:
        raise SetupError(f"wanted an answer from PyPI's advisory service. Found: none ({error}).") from error
    (folder / "audit.json").write_text(answer, encoding="utf-8")
    return judge(found)


def judge(found: list[dict[str, Any]]) -> list[str]:
    """The vulnerabilities in an answer. Raises SetupError unless it covers all packages but ours."""
    ours = {"imagestrata"}
    skipped = [str(one["name"]) for one in found if "skip_reason" in one and one["name"] not in ours]
    if not found:
        raise SetupError("wanted an audit of the installed packages. Found: nothing was audited.")
    if skipped:
        names = ", ".join(skipped[:3]) + (", ..." if len(skipped) > 3 else "")
        raise SetupError(
            f"wanted an audit of {len(found)} packages. Found: PyPI's advisory service does not know {len(skipped)} "
            f"({names}), which are not audited. Do: run this on a machine with access to PyPI itself, not to a mirror."
        )
    return [
        f"{one['name']} {one['version']}: {issue['id']}, fixed in {', '.join(issue['fix_versions']) or 'no version'}"
        for one in found
        for issue in one.get("vulns", [])
    ]


@command("error")
def main() -> int:
    """Write all three; returns the exit code."""
    environment = Environment()
    folder = environment.root / "build" / "inventory"
    write(environment, folder)
    print(f"SBOM      {folder / 'sbom.json'}\nlicenses  {folder / 'licenses.md'}", flush=True)
    found = audit(environment, folder)
    print("\n".join(found) or "audit     no known vulnerabilities")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
