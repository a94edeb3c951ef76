"""The training examples: networks learn masks and several labels from generated images."""

import io
import re
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from types import ModuleType
from uuid import UUID

import numpy as np
import pytest
from PIL import Image

import loader
from imagestrata.devstack.servers.cassandra import Cassandra
from tests.support.encoding import encoded, npy
from tests.support.pictures import write_table
from tests.support.services import fresh_name
from tests.support.split_folders import write_split_folder
from training.examples import multi_label, segmentation

COLOURS = [(220, 40, 40), (40, 220, 40), (40, 40, 220), (220, 220, 40)]
SIDE = 48


def scene(rng: np.random.Generator) -> tuple[Image.Image, Image.Image, np.ndarray]:
    """Coloured rectangles on noise; their masks (0: background, then colours from 1), and which colours there are."""
    pixels = rng.integers(90, 130, (SIDE, SIDE + 8, 3), dtype=np.uint8)
    classes = np.zeros(pixels.shape[:2], dtype=np.uint8)
    for number in rng.permutation(len(COLOURS))[: rng.integers(1, 4)]:
        top, left, height, width = (*rng.integers(0, SIDE - 16, 2), *rng.integers(10, 17, 2))
        pixels[top : top + height, left : left + width] = COLOURS[number]
        classes[top : top + height, left : left + width] = number + 1
    there = np.isin(np.arange(1, len(COLOURS) + 1), classes)
    return Image.fromarray(pixels), Image.fromarray(classes), there.astype(np.uint8)


@pytest.fixture(scope="module")
def splits(cassandra: Cassandra, place: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Splits of the same scenes with masks and with arrays of labels, `masks` and `arrays`."""
    root, keyspace = tmp_path_factory.mktemp("scenes"), fresh_name("scenes")
    rng = np.random.default_rng(3)
    ids = [UUID(int=number) for number in range(120)]
    images, masks, arrays = {}, {}, {}
    for one in ids:
        image, classes, there = scene(rng)
        images[one], masks[one] = encoded(image, "JPEG", quality=95), encoded(classes)
        arrays[one] = npy(there[None])  # a row as in Corel
    for name, kind, labels in (("masks", "blob", masks), ("arrays", "multi", arrays)):
        where = {"hosts": cassandra.hosts, "port": cassandra.port}
        write_table(f"{keyspace}.{name}", images, label_type=kind, labels=labels, **where)
        sides = [(part, [0] * len(part)) for part in (ids[:100], ids[100:])]
        write_split_folder(root / name, sides, data_table=f"{keyspace}.{name}", label_type=kind)
    return root


def arguments(splits: Path, name: str, cassandra: Cassandra) -> list[str]:
    return ["--split", str(splits / name), "--hosts", ",".join(cassandra.hosts), "--port", str(cassandra.port)]


def test_a_network_learns_masks(splits: Path, cassandra: Cassandra, capsys: pytest.CaptureFixture[str]) -> None:
    given = [*arguments(splits, "masks", cassandra), "--size", "32", "--b", "10", "--epochs", "12"]
    assert segmentation.main([*given, "--classes", "5"]) == 0
    found = [float(one) for one in re.findall(r"mean IoU (\d\.\d+)", capsys.readouterr().out)]
    assert len(found) == 12
    assert max(found) > 0.7, found
    assert segmentation.main([*given, "--classes", "3"]) == 1
    assert "Wanted masks with values below --classes 3. Found: " in capsys.readouterr().err


def test_image_and_mask_are_cut_alike(splits: Path, cassandra: Cassandra) -> None:
    train = loader.open_split(splits / "masks", index=0)
    graph = partial(segmentation.graph, size=40, device="cpu")
    with loader.CassandraSource(train, hosts=cassandra.hosts, port=cassandra.port, batch_size=20) as source:
        batches = loader.GenericIterator(source, graph, names=["images", "classes"], numbers=segmentation.numbers)
        shapes, wrong = set(), []
        for batch in batches:
            shapes.add((batch["images"].shape[1:], batch["classes"].shape[1:], str(batch["classes"].dtype)))
            pixels = 127.5 + 64 * batch["images"].transpose(0, 2, 3, 1)
            nearest = np.abs(pixels[..., None, :] - np.array([(110, 110, 110), *COLOURS])).sum(-1).argmin(-1)
            wrong.append((nearest != batch["classes"]).mean())
    assert shapes == {((3, 40, 40), (40, 40), "int64")}
    assert max(wrong) < 0.08, wrong  # at edges, the image is blurred and the mask is not


def test_a_network_learns_several_labels(
    splits: Path, cassandra: Cassandra, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*arguments(splits, "arrays", cassandra), "--size", "32", "--b", "10", "--epochs", "12"]
    assert multi_label.main([*given, "--labels", "4"]) == 0
    found = [float(one) for one in re.findall(r"F1 (\d\.\d+)", capsys.readouterr().out)]
    assert len(found) == 12
    assert max(found) > 0.85, found
    assert multi_label.main([*given, "--labels", "374"]) == 1
    assert "Wanted arrays of --labels 374 numbers. Found: 4\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "option", "name", "message"),
    [
        (segmentation, "--classes", "arrays", r"Wanted a split of images with masks\. Found: Split\(.*'multi' labels"),
        (multi_label, "--labels", "masks", r"Wanted a split with label arrays\. Found: Split\(.*'blob' labels"),
        (segmentation, "--classes", "nowhere", r"segmentation\.py: Wanted .*nowhere.* Found"),
    ],
)
def test_a_split_of_other_labels_is_refused_in_one_line(
    splits: Path,
    cassandra: Cassandra,
    module: ModuleType,
    option: str,
    name: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert module.main([*arguments(splits, name, cassandra), option, "4"]) == 1
    errors = capsys.readouterr().err
    assert re.search(message, errors), errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("module", [segmentation, multi_label])
def test_help_shows_every_step_from_ingest_to_training(module: ModuleType) -> None:
    with redirect_stdout(io.StringIO()) as said, pytest.raises(SystemExit) as ended:
        module.main(["--help"])
    assert ended.value.code == 0
    assert re.search(r"jobs/ingest\.py .*\n.*\n.*jobs/split\.py .*\n.*training/examples/", said.getvalue())
