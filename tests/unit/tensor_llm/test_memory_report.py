import dataclasses
import json

import pytest
import torch

from tensor_llm.adding import add_model
from tensor_llm.checkpoint import load_folder
from tensor_llm.kernels.linear import PackedEmbedding, PackedLinear
from tensor_llm.memory_report import memory_report
from tensor_llm.quantization import WeightFormat
from tensor_llm.serving.opening import kv_dtype_of
from tensor_llm.serving.paged import PagedCache
from tensor_llm.split import LayerSplit
from tensor_llm.store import ModelStore
from tests.unit.tensor_llm.checkpoints import make_theirs, write_theirs

KINDS = ["llama 3.2, tied", "llama with every bias", "qwen2", "qwen3, tied, with biases"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def held_bytes(model) -> int:
    """What the tensors of a decoder really take, each once."""
    tensors = dict(model.named_parameters())
    for name, module in model.named_modules():
        if isinstance(module, PackedLinear | PackedEmbedding):
            tensors |= {f"{name}.codes": module.packed.codes, f"{name}.s": module.packed.scales}
        if isinstance(module, PackedLinear) and module.bias_N is not None:
            tensors[f"{name}.bias"] = module.bias_N
    once = {one.data_ptr(): one.numel() * one.element_size() for one in tensors.values()}
    return sum(once.values())


def report_of(folder, **options):
    return memory_report(folder, **({"kv_tokens": 64, "chunk": 16} | options))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", DTYPES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": torch.float32},
        {"dtype": torch.bfloat16},
        {"format": WeightFormat.INT8},
        {"format": WeightFormat.INT4},
    ],
)
def test_weights_and_cache_take_what_the_report_says(tmp_path, kind, stored, options):
    write_theirs(make_theirs(kind).to(stored), tmp_path)
    (device,) = report_of(tmp_path, **options).devices
    loaded = load_folder(tmp_path, **options)
    assert sum(device.weight_bytes.values()) == held_bytes(loaded.model)
    kv_dtype = kv_dtype_of(loaded, "cpu")
    cache = PagedCache(loaded.config, blocks=4, block_tokens=16, dtype=kv_dtype)
    assert device.kv_bytes == cache.bytes


@pytest.mark.parametrize("format_", WeightFormat)
@pytest.mark.parametrize("options", [{}, {"dtype": torch.float32}])
def test_packed_files_count_as_they_are_loaded(tmp_path, format_, options):
    store = ModelStore(tmp_path / "data")
    source = write_theirs(make_theirs("qwen2.5, tied").bfloat16(), tmp_path / "theirs")
    add_model(store, source, "mini", format=format_)
    (device,) = report_of(store.directory("mini"), **options).devices
    loaded = load_folder(store.directory("mini"), **options)
    assert sum(device.weight_bytes.values()) == held_bytes(loaded.model)
    assert device.mapped_bytes == (0 if options else sum(device.weight_bytes.values()))
    item_bytes = kv_dtype_of(loaded, "cpu").itemsize
    assert device.kv_bytes == 64 * loaded.config.kv_bytes_per_token(item_bytes)


def test_only_what_needs_no_conversion_is_mapped(tmp_path):
    write_theirs(make_theirs("qwen3").bfloat16(), tmp_path)
    (stored,) = report_of(tmp_path).devices
    (converted,) = report_of(tmp_path, dtype=torch.float32).devices
    (packed,) = report_of(tmp_path, format=WeightFormat.INT8).devices
    assert stored.mapped_bytes == sum(stored.weight_bytes.values())
    assert converted.mapped_bytes == 0
    kept = packed.weight_bytes["embedding"] + packed.weight_bytes["norms"]
    assert packed.mapped_bytes == kept


@pytest.mark.parametrize("kind", ["llama 3.2, tied", "qwen2"])
def test_a_split_model_lies_on_both_devices(tmp_path, kind):
    write_theirs(make_theirs(kind), tmp_path)
    split = LayerSplit(first=torch.device("cpu"), second=torch.device("meta"), layer=1)
    report = report_of(tmp_path, split=split, dtype=torch.float32)
    model = load_folder(tmp_path, place=split.device_of, dtype=torch.float32).model
    for device in report.devices:
        own = [one for one in model.parameters() if one.device.type == device.device]
        held = {id(one): one.numel() * one.element_size() for one in own}
        assert sum(device.weight_bytes.values()) == sum(held.values())
    first, second = report.devices
    assert first.kv_bytes * 2 == second.kv_bytes
    assert "head" in second.weight_bytes
    assert "head" not in first.weight_bytes
    # one token's place in the residual stream, beside its numbers
    assert report.host_to_device_bytes == 48 * 4 + 24


def test_a_whole_model_on_the_host_sends_nothing(tmp_path):
    write_theirs(make_theirs("qwen2"), tmp_path)
    report = report_of(tmp_path)
    assert (report.host_to_device_bytes, report.device_to_host_bytes) == (0, 0)
    (device,) = report.devices
    assert device.bytes == (
        sum(device.weight_bytes.values()) + device.kv_bytes + device.activation_bytes
    )
    elsewhere = report_of(tmp_path, device="cuda")
    assert 0 < elsewhere.host_to_device_bytes < 100


def test_a_report_is_plain_data(tmp_path):
    write_theirs(make_theirs("qwen2"), tmp_path)
    fields = json.loads(json.dumps(dataclasses.asdict(report_of(tmp_path))))
    assert set(fields["devices"][0]["weight_bytes"]) == {
        "embedding",
        "attention",
        "mlp",
        "norms",
        "head",
    }
