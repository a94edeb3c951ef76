"""Records of models that training loops write."""

from pathlib import Path

import pytest

import loader
from schemas.models import SUFFIX, ModelRecord
from tests.support.split_folders import image_ids, write_split_folder


def test_a_record_names_the_images_and_the_checkpoint(tmp_path: Path) -> None:
    rows = [(image_ids(40), [0, 1] * 20), (image_ids(10, first=40), [1] * 10)]
    write_split_folder(tmp_path / "split", rows)
    train, val = (loader.open_split(tmp_path / "split", index=index, cache=tmp_path / "cache") for index in (0, 1))
    checkpoint = tmp_path / "model.pt"
    with pytest.raises(loader.OptionError, match=r"No such file or directory: .*model\.pt\. Save it"):
        loader.record_model(checkpoint, training=train)
    checkpoint.write_bytes(b"weights")
    with loader.CassandraSource(train, hosts=["127.0.0.1"], batch_size=4) as source:
        with pytest.raises(loader.OptionError, match=r"Found: CassandraSource\. Of a source, pass source\.split"):
            loader.record_model(checkpoint, training=source)  # type: ignore[arg-type]
        loader.record_model(checkpoint, training=source.split, validation=val, arch="mine")
    record = ModelRecord.from_json(Path(f"{checkpoint}{SUFFIX}").read_text(encoding="utf-8"), place="")
    assert (record.arch, record.seed, record.classes) == ("mine", None, train.num_classes)
    prints = {use: (one.fingerprint, one.made, one.index, one.rows) for use, one in record.images.items()}
    assert prints == {
        "training": (train.fingerprint, train.opened.manifest.created, 0, 40),
        "validation": (val.fingerprint, val.opened.manifest.created, 1, 10),
    }
    with pytest.raises(loader.OptionError, match=r"Wanted the images of training\. Found: none"):
        loader.record_model(checkpoint, training=[])
    loader.record_model(checkpoint, training=[train, val])
    record = ModelRecord.from_json(Path(f"{checkpoint}{SUFFIX}").read_text(encoding="utf-8"), place="")
    assert [(use, one.index) for use, one in record.images.items()] == [("training", 0), ("training 2", 1)]
    loader.record_model(checkpoint, training=train)
    assert [*ModelRecord.from_json(Path(f"{checkpoint}{SUFFIX}").read_text(encoding="utf-8"), place="").images] == [
        "training"
    ]
