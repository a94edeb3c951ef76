"""Split dictionaries as other tools make them."""

import numpy as np

from tests.support.split_folders import image_ids

IDS = image_ids(60)


def theirs(**changes: object) -> dict[str, object]:
    """A dictionary as other tools make it."""
    return {
        "data_table": "imagenette.data",
        "data_id_col": "patch_id",
        "data_label_col": "label",
        "metadata_table": "imagenette.metadata",
        "medadata_id_col": "patch_id",
        "metadata_label_col": "label",
        "data_col": "data",
        "label_type": "int",
        "row_keys": np.array(IDS, dtype=object),
        "split": [np.array([5, 3, 59]), np.array([0])],
        "num_classes": 10,
    } | changes
