import json
import struct

import pytest
import torch
from safetensors.torch import load

from benchmark.contract import Reconstruction
from benchmark.errors import PluginError
from benchmark.running.answers import (
    pack,
    pack_parameters,
    pack_reconstruction,
    unpack,
    unpack_parameters,
    unpack_reconstruction,
)

META = {"json": json.dumps({"gradient_evaluations": 0, "failure": None})}
IMAGES = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def whole(parts):
    return memoryview(bytearray(b"".join(parts)))


def packed(header, data=b"\0" * 4, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return whole([struct.pack("<Q", len(text) if length is None else length), text, data])


def test_reconstruction_crosses_as_it_is():
    given = torch.tensor([[0.5, torch.nan, -torch.inf, 7.0]], requires_grad=True)
    labels = torch.tensor([3, 3, 0, 9])
    there = unpack_reconstruction(whole(pack_reconstruction(Reconstruction(given.T, 12, labels))))
    assert torch.equal(there.labels, labels)
    assert there.failure is None
    assert torch.equal(there.images.nan_to_num(9), given.T.detach().nan_to_num(9))
    assert there.gradient_evaluations == 12


@pytest.mark.parametrize(
    ("residual", "there"), [(None, None), (0.25, 0.25), (float("nan"), "nan"), ([1], "[1]")]
)
def test_residual_crosses_or_its_words_do(residual, there):
    answer = Reconstruction(torch.zeros(1), residual=residual)
    assert unpack_reconstruction(whole(pack_reconstruction(answer))).residual == there


@pytest.mark.parametrize("kind", ["bool", "uint8", "int16", "int64", "bfloat16", "float64"])
def test_tensors_of_any_type_and_shape_cross_as_safetensors_has_them(kind):
    kind = getattr(torch, kind)
    one = torch.arange(6).reshape(2, 3).to(kind)
    given = {"turned": one.T, "lone": one[1, 2], "none": one[:, :0], "same": one}
    data = whole(pack(given, "{}"))
    assert unpack(data, given)[1] == "{}"
    for there in (unpack(data, given)[0], load(bytes(data))):
        assert all(torch.equal(there[name], given[name]) for name in given)
        assert all(there[name].dtype == kind for name in given)


def test_tensor_of_a_type_that_does_not_cross_is_named():
    with pytest.raises(PluginError, match=r"head is of torch\.complex64, which does not cross"):
        pack({"head": torch.zeros(1, dtype=torch.complex64)}, "{}")


def test_failure_crosses_with_its_reason_and_without_tensors():
    failed = Reconstruction(None, 12, torch.tensor([1]), failure="diverged at step 12 of 800")
    data = whole(pack_reconstruction(failed))
    there = unpack_reconstruction(data)
    assert (there.failure, there.gradient_evaluations) == (failed.failure, 12)
    assert load(bytes(data)) == {}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Reconstruction([1.0]), "images of type list; wanted a tensor"),
        (Reconstruction(torch.zeros(1), labels=[1]), "labels of type list; wanted a tensor"),
    ],
    ids=["images", "labels"],
)
def test_answers_that_are_no_tensors_do_not_cross(answer, said):
    with pytest.raises(PluginError, match=said):
        pack_reconstruction(answer)


def test_what_is_well_formed_is_read():
    data = packed({"__metadata__": META, "images": IMAGES})
    assert torch.equal(unpack_reconstruction(data).images, torch.zeros(1))


@pytest.mark.parametrize(
    "data",
    [
        whole([]),
        whole([b"\xff" * 8]),
        packed({"__metadata__": META, "images": IMAGES})[:-1],
        packed({"__metadata__": META, "images": IMAGES}, length=2**63),
        packed({"__metadata__": META, "images": IMAGES}, b"\0" * 5),
        packed({"__metadata__": META, "images": {**IMAGES, "data_offsets": [4, 8]}}, b"\0" * 8),
        packed({"__metadata__": META, "images": IMAGES, "labels": IMAGES}),
        packed({"images": IMAGES}),
        packed({"__metadata__": META, "truth": IMAGES}),
        packed({"__metadata__": META, "images": {**IMAGES, "dtype": "F8_E4M3"}}),
        packed({"__metadata__": META, "images": {**IMAGES, "shape": [2**40]}}),
        packed({"__metadata__": META, "images": {**IMAGES, "shape": [-1]}}),
        packed({"__metadata__": META, "images": {**IMAGES, "shape": [1] * 99}}),
        packed({"__metadata__": META, "images": {**IMAGES, "data_offsets": [0, 2**50]}}),
        packed({"__metadata__": META, "images": None}),
        packed({"__metadata__": {"json": 3}}, b""),
        packed({"__metadata__": {"json": "{}"}}, b""),
        packed({"__metadata__": {"json": META["json"].replace("0", "NaN")}}, b""),
        packed({"__metadata__": {"json": META["json"].replace("0", "9" * 5000)}}, b""),
        packed({"__metadata__": {"json": META["json"].replace("null", '"two\\nlines"')}}, b""),
        packed({"__metadata__": {"json": META["json"].replace("null", f'"{"x" * 201}"')}}, b""),
        packed(b"[" * 100_000, b""),
        packed(b"3", b""),
    ],
    ids=range(23),
)
def test_whatever_else_comes_is_an_error_of_value(data):
    with pytest.raises(ValueError, match=r"."):
        unpack_reconstruction(data)


def test_parameters_cross_under_the_names_that_there_are():
    data = whole(pack_parameters({"head": torch.ones(2, 3)}))
    assert torch.equal(unpack_parameters(data, ["head", "tail"])["head"], torch.ones(2, 3))
    with pytest.raises(ValueError, match="not asked for"):
        unpack_parameters(data, ["tail"])
