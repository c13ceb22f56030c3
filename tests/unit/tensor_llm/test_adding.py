import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from noidle.errors import CheckpointError
from tensor_llm.adding import add_model, remove_model
from tensor_llm.checkpoint import load_folder, load_model, save_model
from tensor_llm.families import export, read_directory
from tensor_llm.kernels.linear import PackedEmbedding, PackedLinear
from tensor_llm.quantization import WeightFormat
from tensor_llm.store import ModelStore
from tests.unit.tensor_llm.builders import TEXT, make_model, make_tokenizer, random_tokens
from tests.unit.tensor_llm.checkpoints import edit_json, make_theirs, write_theirs
from tests.unit.tensor_llm.test_parity import assert_close, logits_of

KINDS = ["llama 3.2, tied", "llama with every bias", "mistral", "qwen2", "qwen3"]
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture
def store(tmp_path) -> ModelStore:
    return ModelStore(tmp_path / "data")


def write(folder, kind="qwen2", dtype=torch.float32, **options):
    write_theirs(make_theirs(kind).to(dtype), folder, **options)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_an_added_model_computes_as_it_did_where_it_came_from(store, tmp_path, kind):
    source = write(tmp_path / "theirs", kind)
    info = add_model(store, source, "mini")
    loaded = load_model(store, "mini", dtype=None)
    assert torch.equal(logits_of(loaded.model), logits_of(load_folder(source).model))
    assert loaded.info == info == store.info("mini")
    assert info.revision.startswith("step-000000-")
    assert info.storage == store.storage_id()
    assert 1 < info.bytes_per_token < 8
    assert loaded.source.chat_template == TEMPLATE


def test_many_files_are_added_as_they_are(store, tmp_path):
    source = write(tmp_path / "theirs", max_shard_size="30KB")
    info = add_model(store, source, "mini")
    files = sorted(path.name for path in source.glob("*.safetensors"))
    assert len(files) > 3
    assert files == sorted(path.name for path in store.directory("mini").glob("*.safetensors"))
    assert info.weight_bytes == sum((source / name).stat().st_size for name in files)
    assert torch.equal(
        logits_of(load_model(store, "mini").model), logits_of(load_folder(source).model)
    )


def test_only_what_belongs_to_the_model_is_copied(store, tmp_path):
    source = write(tmp_path / "theirs")
    for name in ("README.md", "pytorch_model.bin", "model-of-another.safetensors", ".git"):
        (source / name).write_text("x")
    add_model(store, source, "mini")
    assert sorted(path.name for path in store.directory("mini").iterdir()) == [
        "chat_template.jinja",
        "checkpoint.json",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format_", WeightFormat)
def test_packing_on_the_way_equals_packing_while_loading(store, tmp_path, kind, format_):
    source = write(tmp_path / "theirs", kind, torch.bfloat16)
    add_model(store, source, "mini", format=format_)
    stored = load_model(store, "mini", dtype=None)
    packed = load_folder(source, format=format_)
    assert torch.equal(logits_of(stored.model), logits_of(packed.model))
    assert (stored.format, packed.format) == (format_, None)
    layer = stored.model.layers[0]
    for module in (layer.attention.query, layer.attention.output, layer.mlp.down):
        assert module.packed.format is format_
    # the head decides between close tokens
    assert stored.model.output.packed.format is WeightFormat.INT8
    tied = stored.config.tied_head
    assert isinstance(stored.model.embedding, PackedEmbedding) is tied
    if tied:
        assert stored.model.embedding.packed is stored.model.output.packed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("format_", "tolerance"), [("int8", 0.1), ("int4", 0.5)])
def test_a_packed_model_is_near_the_plain_one(store, tmp_path, kind, format_, tolerance):
    source = write(tmp_path / "theirs", kind)
    add_model(store, source, "mini", format=WeightFormat(format_))
    # random weights are chaotic: what a token adds to an error, those after it multiply
    tokens = random_tokens(3)
    packed = logits_of(load_model(store, "mini", dtype=None).model, tokens)
    plain = logits_of(load_folder(source).model, tokens)
    assert (packed - plain).norm() / plain.norm() < tolerance


def test_a_packed_model_becomes_plain_where_a_type_is_asked_for(store, tmp_path):
    add_model(store, write(tmp_path / "theirs"), "mini", format=WeightFormat.INT8)
    plain = load_model(store, "mini", dtype=torch.float32).model
    assert not [one for one in plain.modules() if isinstance(one, PackedLinear)]
    assert {one.dtype for one in plain.parameters()} == {torch.float32}
    packed = load_model(store, "mini", dtype=None).model
    assert torch.equal(
        plain.layers[1].mlp.up.weight, packed.layers[1].mlp.up.packed.dequantize(torch.float32)
    )


def test_packed_weights_take_the_bytes_that_the_format_says(store, tmp_path):
    source = write(tmp_path / "theirs", "llama 3.2, tied", torch.bfloat16)
    plain = add_model(store, source, "plain").weight_bytes
    packed = add_model(store, source, "packed", format=WeightFormat.INT4).weight_bytes
    assert packed < 0.55 * plain
    tensors = load_file(store.directory("packed") / "model.safetensors")
    assert tensors["layers.0.mlp.up.weight.int4"].dtype is torch.uint8
    assert tensors["embedding.weight.int8"].dtype is torch.uint8
    assert "embedding.weight" not in tensors


def test_packed_codes_lie_in_whole_cache_lines(store, tmp_path):
    add_model(store, write(tmp_path / "theirs"), "mini", format=WeightFormat.INT4)
    model = load_model(store, "mini", dtype=None).model
    for module in model.modules():
        if isinstance(module, PackedLinear):
            assert module.packed.codes.data_ptr() % 64 == 0


def test_a_taken_name_is_refused_and_keeps_its_model(store, tmp_path):
    first = add_model(store, write(tmp_path / "one"), "mini")
    with pytest.raises(CheckpointError, match=f"'mini' is taken by {first.revision}"):
        add_model(store, write(tmp_path / "two", "qwen3"), "mini")
    assert store.info("mini") == first


def test_a_revision_is_named_by_its_content(store, tmp_path):
    source = write(tmp_path / "theirs")
    names = [add_model(store, source, name).revision for name in ("a", "b")]
    packed = add_model(store, source, "c", format=WeightFormat.INT8).revision
    (source / "chat_template.jinja").write_text("other")
    others = [packed, add_model(store, source, "d").revision]
    weights = bytearray((source / "model.safetensors").read_bytes())
    weights[-3] ^= 1
    (source / "model.safetensors").write_bytes(weights)
    others.append(add_model(store, source, "e").revision)
    assert names[0] == names[1]
    assert len({names[0], *others}) == 4


def test_what_cannot_be_used_is_not_added(store, tmp_path):
    source = write(tmp_path / "theirs")
    edit_json(source / "config.json", architectures=["MambaForCausalLM"])
    with pytest.raises(CheckpointError, match="MambaForCausalLM"):
        add_model(store, source, "mini")
    assert store.names() == []


def test_weights_that_are_not_finite_cannot_be_packed(store, tmp_path):
    model = make_theirs("qwen2")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 4] = float("nan")
    source = write_theirs(model, tmp_path / "theirs")
    for pack in (
        lambda: add_model(store, source, "mini", format=WeightFormat.INT8),
        lambda: load_folder(source, format=WeightFormat.INT8),
    ):
        with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.up_proj\.weight: .*finite"):
            pack()
    assert store.names() == []
    assert list((tmp_path / "data" / "models" / "mini").iterdir()) == []


def test_a_packed_model_is_not_packed_again(store, tmp_path):
    add_model(store, write(tmp_path / "theirs"), "mini", format=WeightFormat.INT8)
    with pytest.raises(CheckpointError, match="is packed as int8 already"):
        add_model(store, store.directory("mini"), "again", format=WeightFormat.INT4)
    add_model(store, store.directory("mini"), "copy")
    assert store.names() == ["copy", "mini"]


@pytest.mark.parametrize("format_", [None, WeightFormat.INT4])
def test_progress_is_told_from_the_first_byte_to_the_last(store, tmp_path, format_):
    told = []
    source = write(tmp_path / "theirs", max_shard_size="30KB")
    add_model(store, source, "mini", format=format_, progress=lambda *one: told.append(one))
    done = [one[0] for one in told]
    assert done == sorted(done)
    assert len({one[2] for one in told}) > 3
    assert {one[1] for one in told} == {done[-1]}


def test_a_removed_model_is_gone(store, tmp_path):
    add_model(store, write(tmp_path / "theirs"), "mini")
    mapped = load_model(store, "mini", dtype=None).model
    before = logits_of(mapped)
    remove_model(store, "mini")
    assert store.names() == []
    assert list((tmp_path / "data" / "models").iterdir()) == []
    assert torch.equal(logits_of(mapped), before)
    with pytest.raises(CheckpointError, match="no model of this name"):
        remove_model(store, "mini")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("largest", [5_000_000_000, 40_000])
def test_transformers_loads_what_was_exported(store, tmp_path, kind, largest):
    theirs = make_theirs(kind)
    write_theirs(theirs, tmp_path / "theirs")
    add_model(store, tmp_path / "theirs", "mini")
    export(store.directory("mini"), tmp_path / "out", largest_file_bytes=largest)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert torch.equal(logits_of(again), logits_of(theirs))
    many = len(list((tmp_path / "out").glob("*.safetensors"))) > 1
    assert many is (largest == 40_000)


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_loads_a_packed_model_that_was_exported(store, tmp_path, kind):
    add_model(store, write(tmp_path / "theirs", kind), "mini", format=WeightFormat.INT8)
    export(store.directory("mini"), tmp_path / "out")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    ours = load_folder(tmp_path / "out", dtype=torch.float32).model
    assert_close(logits_of(ours), logits_of(again))
    packed = load_model(store, "mini", dtype=None).model
    assert torch.equal(
        again.model.layers[1].mlp.up_proj.weight,
        packed.layers[1].mlp.up.packed.dequantize(torch.bfloat16).float(),
    )
    assert read_directory(tmp_path / "out").chat_template == TEMPLATE


@pytest.mark.parametrize("tied", [True, False])
def test_transformers_loads_a_model_that_was_trained_here(store, tmp_path, tied):
    model = make_model(vocabulary=300, tied_head=tied)
    save_model(
        store, "mini", "r1", model=model, tokenizer=make_tokenizer(), step=0, bytes_per_token=2
    )
    export(store.directory("mini", "r1"), tmp_path / "out")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokens = random_tokens(30)
    assert_close(logits_of(model, tokens), logits_of(again, tokens))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.encode(TEXT[:200]) == make_tokenizer().encode(TEXT[:200])
    assert again.generation_config.eos_token_id in (
        make_tokenizer().eos_token,
        [make_tokenizer().eos_token],
    )


def test_an_export_overwrites_nothing(store, tmp_path):
    source, out = write(tmp_path / "theirs"), tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("x")
    with pytest.raises(CheckpointError, match="is not empty"):
        export(source, out)
    assert (out / "mine").read_text() == "x"
    (out / "mine").unlink()
    export(source, out)
    assert json.loads((out / "config.json").read_text())["model_type"] == "qwen2"


def test_directories_can_be_looked_at_without_torch():
    code = "import sys, tensor_llm.families; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
