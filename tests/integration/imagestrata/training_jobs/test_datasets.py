"""Jobs pull their datasets from a service."""

import stat
from pathlib import Path

from imagestrata.training_jobs.datasets import dataset_at_hand
from tests.support.dataset_servers import TAR, ServerInThread, tar_of


def test_datasets_come_from_a_service_version_by_version(tmp_path: Path) -> None:
    with ServerInThread(tmp_path / "served") as server:
        server.create("mine")
        for text in (b"one", b"two"):
            server.put("mine", tar_of({"train/a.txt": text}), kind=TAR)
            told: list[str] = []
            found = dataset_at_hand("mine", url=server.url, prefix=tmp_path / "p", tell=told.append)
            assert [line.partition(" after")[0] for line in told] == [
                f"pulling mine from {server.url} into {tmp_path / 'p'}",
                "mine: downloading 0.0 MB",
                "mine: unpacking 1 files",
                "mine is ready",
            ]
            assert (found / "train" / "a.txt").read_bytes() == text
            assert stat.S_IMODE((found / "train").stat().st_mode) & 0o222 == 0
