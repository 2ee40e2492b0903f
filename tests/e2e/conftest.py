"""What the end-to-end tests share: the demo model, its images, and devices that are built once."""

from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples" / "digits" / "model.onnx"


@pytest.fixture(scope="session")
def digits():
    with np.load(ROOT / "examples" / "digits" / "images.npz") as data:
        return data["x"], data["y"]
