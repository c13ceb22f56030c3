import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save

from noidle.errors import CheckpointError
from tensor_llm.tensor_file import read_header
from tensor_llm.tensor_writer import TensorWriter, tensor_bytes

DTYPES = {"F32": 4, "BF16": 2, "F16": 2, "U8": 1, "I64": 8}


def write(path, header, data=b"", pad=b""):
    text = json.dumps(header).encode() + pad
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(begin, end, dtype="U8", shape=None):
    size = end - begin if shape is None else None
    return {"dtype": dtype, "shape": shape or [size], "data_offsets": [begin, end]}


def test_the_header_of_another_writer_is_read(tmp_path):
    tensors = {"a": torch.ones(3, 5), "b": torch.zeros(7, dtype=torch.bfloat16)}
    path = tmp_path / "x.safetensors"
    path.write_bytes(save(tensors, {"format": "pt"}))
    found = read_header(path)
    assert {name: one.shape for name, one in found.items()} == {"a": (3, 5), "b": (7,)}
    assert b"".join(tensor_bytes(found["a"])) == tensors["a"].numpy().tobytes()


PLACES = {
    "two at one place": ({"a": entry(0, 4), "b": entry(0, 4)}, b"1234", "b: overlaps another"),
    "one inside another": ({"a": entry(0, 4), "b": entry(2, 4)}, b"1234", "b: overlaps another"),
    "a gap between": ({"a": entry(0, 2), "b": entry(3, 4)}, b"1234", "b: leaves a gap"),
    "a gap before": ({"a": entry(1, 4)}, b"1234", "a: leaves a gap"),
    "beyond the end": ({"a": entry(0, 5)}, b"1234", "a: cannot be read: it ends at byte"),
    "bytes of nobody": ({"a": entry(0, 3)}, b"1234", "1 bytes belong to no tensor"),
    "end before begin": ({"a": entry(3, 1, shape=[2])}, b"1234", "a: shape"),
    "another size": ({"a": entry(0, 4, shape=[3])}, b"1234", "takes 3 bytes: it has 4"),
    "another type": ({"a": entry(0, 4, "F32", [4])}, b"1234", "takes 16 bytes: it has 4"),
    "an unknown type": ({"a": entry(0, 4, "F3")}, b"1234", "type 'F3': allowed is F64"),
    "a negative size": ({"a": entry(0, 4, shape=[-2, -2])}, b"1234", "a: its shape"),
    "a size that is none": ({"a": entry(0, 1, shape=[True])}, b"1", "a: its shape"),
    "a broken size": ({"a": entry(0, 4, shape=[4.0])}, b"1234", "a: its shape"),
    "nine sizes": ({"a": entry(0, 1, shape=[1] * 9)}, b"1", "a: its shape"),
    "sizes beyond belief": ({"a": entry(0, 1, shape=[1 << 62, 0])}, b"", "a: its shape"),
    "three places": (
        {"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 1]}},
        b"1",
        "a: its shape or its place",
    ),
    "a field more": ({"a": entry(0, 1) | {"more": 1}}, b"1", "a: allowed are dtype, shape"),
    "no entry": ({"a": 3}, b"", "a: allowed are dtype, shape"),
    "metadata that are none": ({"__metadata__": {"a": 1}}, b"", "__metadata__: allowed is"),
}


@pytest.mark.parametrize("kind", PLACES)
def test_an_entry_that_does_not_fit_the_file_is_refused_by_name(tmp_path, kind):
    header, data, fault = PLACES[kind]
    with pytest.raises(CheckpointError, match=fault):
        read_header(write(tmp_path / "x.safetensors", header, data))


def test_spaces_behind_a_header_and_empty_tensors_are_allowed(tmp_path):
    header = {"a": entry(0, 0, shape=[0, 4]), "b": entry(0, 2)}
    found = read_header(write(tmp_path / "x.safetensors", header, b"12", b"   "))
    assert found["b"].bytes == 2


@given(
    shapes=st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.tuples(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(0, 5), max_size=3)),
        max_size=6,
    ),
    seed=st.integers(0, 100),
)
def test_what_the_writer_writes_others_read(tmp_path_factory, shapes, seed):
    shapes.pop("__metadata__", None)
    path = tmp_path_factory.mktemp("written") / "x.safetensors"
    planned = {name: (dtype, tuple(shape)) for name, (dtype, shape) in shapes.items()}
    sizes = {
        name: torch.Size(shape).numel() * DTYPES[dtype] for name, (dtype, shape) in planned.items()
    }
    contents = {
        name: bytes((seed + place) % 251 for place in range(size)) for name, size in sizes.items()
    }
    with TensorWriter(path, planned) as writer:
        # in any order, in any parts
        for name in reversed(list(planned)):
            writer.write(name, (contents[name][:3], contents[name][3:]))
    found = read_header(path)
    assert {name: (one.dtype, one.shape) for name, one in found.items()} == planned
    for name, one in found.items():
        assert b"".join(tensor_bytes(one)) == contents[name]
    theirs = load_file(path)
    for name, tensor in theirs.items():
        data = tensor.flatten().view(torch.uint8) if tensor.numel() else torch.empty(0)
        assert bytes(data.tolist()) == contents[name]
    whole = [one for one in found.values() if one.bytes % 64 == 0]
    assert all(one.offset % 64 == 0 for one in whole)
