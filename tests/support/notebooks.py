"""The notebooks of the guided tour: executed, and stored with what their cells give.

python -m tests.support.notebooks        # execute all in a copy of the folder and store them: make notebooks
"""

import base64
import io
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from imagestrata.devstack.servers.cassandra import Cassandra

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS_A_CELL = 600


def copied(folder: Path) -> Path:
    """A copy of the notebooks below a folder, in which their files grow."""
    return Path(
        shutil.copytree(FOLDER, folder / "notebooks", ignore=shutil.ignore_patterns("build", "__pycache__", ".*"))
    )


def executed(name: str, folder: Path) -> Any:
    """A notebook of a copied folder after its cells were run in order."""
    import nbformat  # takes seconds, which every process that collects the tests would spend
    from nbclient import NotebookClient

    book = nbformat.read(folder / name, as_version=4)
    NotebookClient(book, timeout=SECONDS_A_CELL, resources={"metadata": {"path": str(folder)}}).execute()
    return book


def tidied(book: Any, folder: Path) -> str:
    """The stored form of a notebook: outputs for people, without warnings and local paths."""
    import nbformat

    metadata = json.loads((folder / BOOKS[0].name).read_text(encoding="utf-8"))["metadata"]
    book.metadata = nbformat.from_dict(metadata)
    for cell in book.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
            for output in cell.outputs:
                if "metadata" in output:
                    output.metadata = {}
                if "image/png" in output.get("data", {}):
                    output.data["image/png"] = _reduced(output.data["image/png"])
    text = nbformat.writes(book)
    for path in sorted({str(folder), str(folder.resolve())}, key=len, reverse=True):
        text = text.replace(path, "/notebooks")
    return text.rstrip("\n") + "\n"


def _joined(outputs: list[Any]) -> list[Any]:
    """Outputs without standard error; text that was printed in pieces is joined."""
    joined: list[Any] = []
    for output in outputs:
        if output.get("name") == "stderr":
            continue
        if output.output_type == "stream" and joined and joined[-1].output_type == "stream":
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def _reduced(png: str) -> str:
    """A base64 image reduced to 64 colours: plots look the same, at a quarter of the size."""
    out = io.BytesIO()
    image = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    image.quantize(64, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return base64.b64encode(out.getvalue()).decode()


def kinds(book: Any) -> list[list[str]]:
    """For each code cell, its kinds of output: `text`, or the types of what it shows."""
    return [
        [
            "text" if output["output_type"] == "stream" else "+".join(sorted(output["data"]))
            for output in cell["outputs"]
        ]
        for cell in book["cells"]
        if cell["cell_type"] == "code"
    ]


def texts(book: Any) -> str:
    """All that the cells of a notebook print or show as text."""
    outputs = [output for cell in book["cells"] if cell["cell_type"] == "code" for output in cell["outputs"]]
    found = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    return "\n".join("".join(one) for one in found)


def machine_paths(text: str) -> list[str]:
    """Paths in a text that only exist on one machine."""
    return re.findall(r"(?:file://)?/(?:home|root|tmp|work|Users|opt|var|usr|mnt|srv)/[^\s\"'\\]*", text)


def main() -> int:
    """Execute the notebooks and store them."""
    with tempfile.TemporaryDirectory() as place:
        folder = copied(Path(place))
        try:
            for path in BOOKS:
                print(path.name, flush=True)
                path.write_text(tidied(executed(path.name, folder), folder), encoding="utf-8")
        finally:
            Cassandra(folder / "build" / "cassandra").stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
