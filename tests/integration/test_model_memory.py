"""What a model takes in the memory of real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tensor_llm.adding import add_model
from tensor_llm.checkpoint import load_folder
from tensor_llm.config import ModelConfig
from tensor_llm.kernels.library import best_kernels
from tensor_llm.kernels.linear import PackedLinear
from tensor_llm.parts import tensor_shapes
from tensor_llm.quantization import WeightFormat
from tensor_llm.store import ModelStore
from tensor_llm.tensor_writer import TensorWriter
from tests.unit.tensor_llm.builders import make_tokenizer
from tests.unit.tensor_llm.checkpoints import make_theirs, write_theirs

pytestmark = pytest.mark.alone

MIB = 1 << 20
# about 100 MiB in tensors of at most 4
CONFIG = ModelConfig(
    layers=8,
    hidden=512,
    heads=8,
    kv_heads=4,
    head_size=64,
    mlp=4096,
    vocabulary=4096,
    context=64,
    tied_head=False,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    shapes = tensor_shapes(CONFIG)
    planned = {name: ("BF16", shape) for name, shape in shapes.items()}
    generator = torch.Generator().manual_seed(0)
    with TensorWriter(folder / "model.safetensors", planned) as writer:
        for name, shape in shapes.items():
            weight = torch.randn(shape, generator=generator).bfloat16()
            writer.write(name, (weight.view(torch.int16).numpy().tobytes(),))
    (folder / "config.json").write_text(json.dumps(CONFIG.to_json()))
    (folder / "tokenizer.json").write_text(make_tokenizer().to_json())
    return folder


WEIGHTS = 2 * CONFIG.parameters


def mapping_of(address: int) -> str:
    """The file that is mapped there."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, _, last = line.split()[0].partition("-")
        if int(first, 16) <= address < int(last, 16):
            return line.split(maxsplit=5)[-1]
    return ""


def test_weights_lie_in_the_mapped_file(folder):
    loaded = load_folder(folder)
    for name, parameter in loaded.model.named_parameters():
        assert mapping_of(parameter.data_ptr()) == str(folder / "model.safetensors"), name


def test_loading_reads_no_weight(folder):
    loaded = load_folder(folder)
    grown = loaded.working_set_after_bytes - loaded.working_set_before_bytes
    assert grown < WEIGHTS // 4


def test_packed_weights_lie_in_the_mapped_file_too(tmp_path):
    theirs = write_theirs(make_theirs("qwen2"), tmp_path / "theirs")
    store = ModelStore(tmp_path / "data")
    add_model(store, theirs, "mini", format=WeightFormat.INT4)
    packed = store.directory("mini")
    model = load_folder(packed).model
    for module in model.modules():
        if isinstance(module, PackedLinear):
            for tensor in (module.packed.codes, module.packed.scales):
                assert mapping_of(tensor.data_ptr()) == str(packed / "model.safetensors")


PROGRAM = """
import json, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from tensor_llm.adding import add_model
from tensor_llm.checkpoint import load_folder
from tensor_llm.kernels.linear import pack
from tensor_llm.quantization import WeightFormat
from tensor_llm.store import ModelStore

def status(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024

def shares():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}

what, folder, data = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
# what torch and the kernels take once
pack(torch.ones(64, 64), WeightFormat.INT4)
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
if what == "add":
    add_model(ModelStore(data), folder, "mini", format=WeightFormat.INT4)
elif what == "copy":
    add_model(ModelStore(data), folder, "mini")
elif what == "pack":
    loaded = load_folder(folder, format=WeightFormat.INT4)
elif what == "convert":
    loaded = load_folder(folder, dtype=torch.float32)
else:
    loaded = load_folder(folder)
    for parameter in loaded.model.parameters():
        parameter.sum()
print(json.dumps({"peak": status("VmHWM") - before, "now": status("VmRSS") - before, **shares()}))
sys.stdout.flush()
if what == "hold":
    # until the test has looked at all
    sys.stdin.readline()
    print(json.dumps(shares()))
"""


def start(what: str, folder: Path, data: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, what, str(folder), str(data)],
        # glibc gives back at once what it does not fit among small pieces; else it sometimes
        # keeps as much as the weights for later
        env={**os.environ, "MALLOC_MMAP_THRESHOLD_": str(MIB)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run(what: str, folder: Path, data: Path) -> dict[str, int]:
    with start(what, folder, data) as process:
        out, _ = process.communicate()
    assert process.returncode == 0
    return json.loads(out)


@pytest.mark.parametrize("what", ["add", "copy"])
def test_adding_holds_one_tensor_at_a_time(folder, tmp_path, what):
    found = run(what, folder, tmp_path)
    # some times the largest tensor, in float32 and codes, and never the model
    assert found["peak"] < 64 * MIB < 0.6 * WEIGHTS


def test_packing_while_loading_holds_the_packed_weights_and_one_tensor(folder, tmp_path):
    found = run("pack", folder, tmp_path)
    # the embedding stays mapped, the head has eight bits; without kernels parts are larger
    slack = 48 if best_kernels() is not None else 72
    assert 0.32 * WEIGHTS + slack * MIB < WEIGHTS
    assert found["peak"] < 0.32 * WEIGHTS + slack * MIB


def test_converting_holds_the_converted_weights_and_one_tensor(folder, tmp_path):
    assert run("convert", folder, tmp_path)["peak"] < 2 * WEIGHTS + 32 * MIB


def test_a_second_process_shares_the_pages_of_the_first(folder, tmp_path):
    holders = [start("hold", folder, tmp_path) for _ in range(2)]
    try:
        for holder in holders:
            assert json.loads(holder.stdout.readline())["now"] > 0.9 * WEIGHTS
        # both have read every weight and still have it mapped
        found = []
        for holder in holders:
            holder.stdin.write("\n")
            holder.stdin.flush()
            found.append(json.loads(holder.stdout.readline()))
    finally:
        for holder in holders:
            holder.communicate()
    # pages that the system has not written out yet count as dirty
    shared = found[0]["Shared_Clean"] + found[0]["Shared_Dirty"]
    assert shared > 0.9 * WEIGHTS
    assert found[0]["Pss"] < found[0]["Rss"] - 0.45 * WEIGHTS
