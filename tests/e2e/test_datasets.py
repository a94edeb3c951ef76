"""Other libraries read pulled datasets."""

from pathlib import Path

import pytest

from imagestrata import hub
from tests.support.dataset_servers import ServerInThread


def test_torchvision_reads_a_pulled_folder_of_classes(tmp_path: Path) -> None:
    folders = pytest.importorskip("torchvision.datasets")
    image = pytest.importorskip("PIL.Image")
    for number in range(6):
        path = tmp_path / "folder" / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (4, 4), (number, 0, 0)).save(path)
    with ServerInThread(tmp_path / "root") as server:
        service = hub.connect(server.url)
        service.push(tmp_path / "folder", "pictures")
        assert [one.images for one in service.list()] == [6]
        found = folders.ImageFolder(str(service.pull("pictures", tmp_path / "to")))
    assert found.classes == ["cat", "dog"]
    assert [(picture.getpixel((0, 0))[0], label) for picture, label in found] == [
        (0, 0), (2, 0), (4, 0), (1, 1), (3, 1), (5, 1),
    ]  # fmt: skip
