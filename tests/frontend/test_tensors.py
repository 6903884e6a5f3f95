"""Tensors: every element type and storage, and data that contradicts its declaration."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from whet.core.errors import ModelError
from whet.frontend.onnx.external import ExternalData
from whet.frontend.onnx.tensors import FROM_ONNX, Foreign, read_sparse, read_tensor

NOWHERE = ExternalData(None)


@pytest.mark.parametrize("number", FROM_ONNX)
@pytest.mark.parametrize("raw", [True, False])
def test_element_types_as_onnx_reads_them(number, raw):
    dtype = FROM_ONNX[number]
    low = 0 if dtype.kind in ("uint", "bool") or dtype.name == "f8e8m0" else -2
    values = np.random.default_rng(number).integers(low, 2, (3, 5)).astype(dtype.numpy)
    proto = numpy_helper.from_array(values, "t")
    if not raw:
        proto = helper.make_tensor("t", number, values.shape, values.astype(np.float64).ravel())
    assert proto.HasField("raw_data") == raw
    got = read_tensor(proto, NOWHERE)
    assert isinstance(got, np.ndarray)
    assert got.dtype == dtype.numpy
    np.testing.assert_array_equal(got.astype(np.float64), values.astype(np.float64))


def test_all_bytes_of_the_small_types():
    for number in (21, 22, 23, 25, 26):
        per_byte = 8 // FROM_ONNX[number].bits
        proto = TensorProto(data_type=number, dims=[256 * per_byte], raw_data=bytes(range(256)))
        expected = numpy_helper.to_array(proto)
        got = read_tensor(proto, NOWHERE)
        assert isinstance(got, np.ndarray)
        np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("number", [TensorProto.STRING, TensorProto.COMPLEX64, 0])
def test_types_that_have_no_counterpart(number):
    assert isinstance(read_tensor(TensorProto(data_type=number, dims=[1]), NOWHERE), Foreign)


@pytest.mark.parametrize(
    ("dims", "code"),
    [
        ([3], "WH2003"),
        ([-1], "WH2003"),
        ([1 << 40], "WH2003"),
        ([1 << 62, 1 << 62], "WH2006"),
        ([0, 1 << 62], "WH2006"),
        ([1] * 100, "WH2006"),
    ],
)
@pytest.mark.parametrize("raw", [True, False])
def test_dimensions_that_contradict_the_data(dims, code, raw):
    proto = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims)
    if raw:
        proto.raw_data = bytes(8)
    else:
        proto.float_data.extend([0.0, 0.0])
    with pytest.raises(ModelError, match="'w'") as raised:
        read_tensor(proto, NOWHERE)
    assert raised.value.code == code


def sparse(indices: list[object], dims: list[int]) -> object:
    values = helper.make_tensor("s", TensorProto.FLOAT, [2], [5.0, 7.0])
    array = np.array(indices)
    places = numpy_helper.from_array(array, "i")
    return helper.make_sparse_tensor(values, places, dims)


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_tensors_are_made_dense(indices):
    got = read_sparse(sparse(indices, [2, 3]), NOWHERE)
    np.testing.assert_array_equal(got, [[0, 5, 0], [0, 0, 7]])


@pytest.mark.parametrize(
    ("indices", "dims"),
    [([1, 6], [2, 3]), ([-1, 2], [2, 3]), ([[0, 1], [1, 3]], [2, 3]), ([1, 2], [1 << 20, 1 << 19])],
)
def test_damaged_sparse_tensors(indices, dims):
    with pytest.raises(ModelError, match="sparse tensor 's'"):
        read_sparse(sparse(indices, dims), NOWHERE)
