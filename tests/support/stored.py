"""Files that an earlier version wrote, as text in ``stored_files``. They are never written again.

Users' files must stay readable. If a new version writes another form, add a file of it and keep the old one. A file's
bytes are text, or base64 of zlib.
"""

import base64
import json
import zlib
from pathlib import Path

_FILES = Path(__file__).with_name("stored_files")


def unpack(name: str, folder: Path) -> Path:
    """Write the files of ``stored_files/NAME.json`` into a folder; return the folder."""
    for path, form in json.loads((_FILES / f"{name}.json").read_text(encoding="utf-8"))["files"].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        is_text = "text" in form
        data = "".join(form["text" if is_text else "zlib"]).encode()
        (folder / path).write_bytes(data if is_text else zlib.decompress(base64.b64decode(data)))
    return folder
