"""External data is read inside the model's folder only."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.frontend.small_models import model, node, run, tensor
from whet.core.errors import ModelError
from whet.frontend.onnx import import_model

W = np.arange(6, dtype=np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with weights in it, and a secret beside it."""
    inside = tmp_path / "model"
    (inside / "part").mkdir(parents=True)
    (inside / "w.bin").write_bytes(b"head" + W.tobytes())
    (inside / "part" / "w.bin").write_bytes(W.tobytes())
    (tmp_path / "secret").write_bytes(W.tobytes())
    return inside


def save(folder: Path, **entries: object) -> Path:
    made = model([node("Add", "x w", "y")], [tensor("x", [6])], [tensor("y")], {"w": W})
    weight = made.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        weight.external_data.add(key=key, value=str(value))
    path = folder / "m.onnx"
    path.write_bytes(made.SerializeToString())
    return path


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "w.bin", "offset": 4, "length": 24},
        {"location": "w.bin", "offset": 4},
        {"location": "part/w.bin"},
        {"location": "./part/w.bin", "checksum": "ignored"},
    ],
)
def test_data_inside_the_folder(folder, entries):
    (y,) = run(save(folder, **entries), x=W)
    np.testing.assert_array_equal(y, 2 * W)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "../secret"}, "not a path inside"),
        ({"location": "part/../../secret"}, "not a path inside"),
        ({"location": "part/../part/w.bin"}, "not a path inside"),
        ({"location": "/etc/hostname"}, "not a path inside"),
        ({"location": "..\\secret"}, "not a path inside"),
        ({"location": "w\0.bin"}, "not a path inside"),
        ({}, "not a path inside"),
        ({"location": "missing.bin"}, "cannot be read"),
        ({"location": "part"}, "not a plain file"),
        ({"location": "w.bin", "offset": 8}, "ends after the file's 28 bytes"),
        ({"location": "w.bin", "offset": -4}, "offset '-4'"),
        ({"location": "w.bin", "offset": "9" * 30}, "not a number of bytes"),
        ({"location": "w.bin", "length": 25}, "has 25 bytes, its type needs 24"),
    ],
)
def test_data_that_is_refused(folder, entries, message):
    with pytest.raises(ModelError, match=message) as raised:
        import_model(save(folder, **entries))
    assert raised.value.code == "WH2004"


def test_links_that_lead_out_are_refused(folder):
    secret = folder.parent / "secret"
    (folder / "link.bin").symlink_to(secret)
    (folder / "loop.bin").symlink_to("loop.bin")
    (folder / "outside").symlink_to(folder.parent)
    os.link(secret, folder / "hard.bin")
    os.mkfifo(folder / "pipe.bin")
    for location, message in (
        ("link.bin", "leads out of the model's folder"),
        ("outside/secret", "leads out of the model's folder"),
        ("loop.bin", "cannot be read"),
        ("hard.bin", "second name"),
        ("pipe.bin", "not a plain file"),
    ):
        with pytest.raises(ModelError, match=message) as raised:
            import_model(save(folder, location=location))
        assert raised.value.code == "WH2004"


def test_a_link_that_stays_inside_is_fine(folder):
    (folder / "same.bin").symlink_to("part/w.bin")
    (y,) = run(save(folder, location="same.bin"), x=W)
    np.testing.assert_array_equal(y, 2 * W)


def test_bytes_have_no_folder(folder):
    data = save(folder, location="w.bin").read_bytes()
    with pytest.raises(ModelError, match="the model has no folder"):
        import_model(data)
