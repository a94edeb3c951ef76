"""The documentation builds without warnings, and its pages request no other hosts."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_site_builds_without_warnings_and_needs_no_other_host(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-E", "-W", "--keep-going", "-n", "-q", "docs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert {"index.html", "search.html", "command-lines.html", "api.html"} <= {page.name for page in pages}
    asked = re.compile(r"<(?:script|link|img|iframe|source)[^>]+(?:src|href)=[\"'](?:https?:)?//[^\"']*")
    assert [hit for page in pages for hit in asked.findall(page.read_text(encoding="utf-8"))] == []
    styles = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^\"')]*")
    assert [hit for page in tmp_path.rglob("*.css") for hit in styles.findall(page.read_text(encoding="utf-8"))] == []
