"""Contact sheets: which images are tried, and the scans of a JPEG."""

from pathlib import Path

from PIL import Image

from formats.tar_index import TarIndex, write_index
from imagestrata.service.server.sheets import _layers_of_first_scan, spread
from tests.support.dataset_servers import tar_of
from tests.support.encoding import encoded


def test_layers_of_the_first_jpeg_scan_are_counted() -> None:
    data = encoded(Image.new("RGB", (16, 16)), "JPEG")
    place = data.index(b"\xff\xda")
    for given, wanted in (
        (data, 3),
        (data[:2] + b"\xff" + data[2:], 3),
        (data[: place + 4] + b"\1" + data[place + 5 :], 1),
    ):
        assert _layers_of_first_scan(given) == wanted


def test_pictures_are_sampled_evenly_from_folders(tmp_path: Path) -> None:
    def tried(files: list[str]) -> list[str]:
        (tmp_path / "tar").write_bytes(tar_of(dict.fromkeys(files, b"")))
        write_index(tmp_path / "tar", tmp_path / "index")
        with TarIndex(tmp_path / "index") as index:
            return [member.path for member in spread(index)]

    few = [f"{split}/{name}/{n}.jpg" for split in ("train", "val") for name in ("a", "b") for n in range(9)]
    found = tried([*few, "train/a/notes.txt", "0.txt", "top.jpg"])
    assert found[:5] == ["top.jpg", "train/a/0.jpg", "train/b/0.jpg", "val/a/0.jpg", "val/b/0.jpg"]
    assert len(found) == len(set(found)) == 37
    many = tried([f"class-{number:03d}/{n}.jpg" for number in range(240) for n in range(3)])
    assert [path.split("/")[0] for path in many[:24]] == [f"class-{number:03d}" for number in range(0, 240, 10)]
    assert tried([]) == []
    loose = [f"train/{name}/{n}.jpg" for name in ("cat", "zebra") for n in range(300)]
    found = tried([*loose, "train/labels.txt", "zz.jpg", *(f"train/m{n}.txt" for n in range(60))])
    assert found[:3] == ["train/cat/0.jpg", "train/zebra/0.jpg", "zz.jpg"]
