import pytest
import torch

from noidle.errors import CheckpointError
from tensor_llm.weights import read_tensors, write_tensors

CPU = torch.device("cpu")
TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4)}
SHAPES = {name: tuple(tensor.shape) for name, tensor in TENSORS.items()}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x.safetensors"
    write_tensors(TENSORS, path)
    return path


def read(path, shapes=SHAPES, **options):
    return dict(read_tensors(path, shapes, device_of=lambda _: CPU, **options))


def test_tensors_come_back_equal(path):
    found = read(path)
    assert found.keys() == TENSORS.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in TENSORS.items())


def test_tensors_come_in_the_type_asked_for(path):
    assert {tensor.dtype for tensor in read(path, dtype=torch.bfloat16).values()} == {
        torch.bfloat16
    }


def test_writing_to_what_was_read_does_not_change_the_file(path):
    before = path.read_bytes()
    read(path)["a"].fill_(7)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("shapes", "part", "fault"),
    [
        (SHAPES | {"c": (1,)}, "c", "this tensor is missing"),
        ({"a": (2, 3)}, "b", "the config has no such tensor"),
        (SHAPES | {"a": (3, 2)}, "a", r"shape \(2, 3\): the config wants \(3, 2\)"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(path, shapes, part, fault):
    with pytest.raises(CheckpointError, match=fault) as caught:
        read(path, shapes)
    assert (caught.value.path, caught.value.part) == (str(path), part)


def test_integers_are_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    write_tensors({"a": torch.zeros(2, dtype=torch.int64)}, path)
    with pytest.raises(CheckpointError, match=r"x\.safetensors: a: type I64: allowed is F32"):
        read(path, {"a": (2,)})


@pytest.mark.parametrize("keep", [0, 4, 8, 60, -1])
def test_a_cut_file_is_refused_by_name(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"x\.safetensors: .*cannot be read"):
        read(path)


def test_a_header_that_lies_is_refused_by_name(path):
    for content in (
        b"\xff" * 64,
        (1 << 62).to_bytes(8, "little") + b"{}",
        b"\x02" + bytes(7) + b"{}",
    ):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"x\.safetensors"):
            read(path)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(CheckpointError, match=r"y\.safetensors: cannot be read"):
        read(tmp_path / "y.safetensors")
