"""Whatever a model's files hold, they are refused by file and part, or load; within bounds."""

import json
import os
import random
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from noidle.errors import CheckpointError
from tensor_llm.adding import add_model
from tensor_llm.checkpoint import load_folder
from tensor_llm.families import read_directory
from tensor_llm.quantization import WeightFormat
from tensor_llm.store import ModelStore
from tensor_llm.tensor_file import LARGEST_HEADER_BYTES
from tests.unit.tensor_llm.builders import random_tokens
from tests.unit.tensor_llm.checkpoints import (
    LLAMA3_ROPE,
    REMOVED,
    edit_json,
    make_theirs,
    write_theirs,
)
from tests.unit.tensor_llm.test_parity import logits_of

TOKENS = random_tokens(5)
MOST_BYTES = 200 << 20
JSON_FILES = ["config.json", "generation_config.json", "tokenizer_config.json"]
ALL_JSON_FILES = [*JSON_FILES, "special_tokens_map.json", "model.safetensors.index.json"]
SEVERAL = settings(max_examples=100, deadline=None)


def make_folder(folder: Path, **options) -> Path:
    theirs = make_theirs("qwen2", num_hidden_layers=1, rope_scaling=LLAMA3_ROPE)
    write_theirs(theirs, folder, **options)
    texts = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": "{{ 1 }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(texts))
    (folder / "special_tokens_map.json").write_text(json.dumps({"unk_token": "<unk>"}))
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return make_folder(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def sharded(tmp_path_factory) -> Path:
    return make_folder(tmp_path_factory.mktemp("sharded"), max_shard_size="50KB")


@pytest.fixture
def spoilt(tmp_path, whole) -> Path:
    return shutil.copytree(whole, tmp_path / "spoilt")


@pytest.fixture
def shards(tmp_path, sharded) -> Path:
    return shutil.copytree(sharded, tmp_path / "shards")


def refusal(folder: Path) -> CheckpointError:
    """The error that a folder is refused with, on every way into it."""
    with pytest.raises(CheckpointError) as caught:
        load_folder(folder)
    store = ModelStore(folder.parent / "data")
    for format_ in (None, WeightFormat.INT4):
        with pytest.raises(CheckpointError):
            add_model(store, folder, "mini", format=format_)
    assert store.names() == []
    text = str(caught.value)
    assert len(text) < 1200
    # what cannot be printed would hide the error behind another one
    assert text.isprintable()
    assert text.encode()
    return caught.value


def refused_or_loads(folder: Path) -> torch.Tensor | None:
    refused: CheckpointError | None = None
    try:
        loaded = load_folder(folder)
    except CheckpointError as error:
        refused = error
    if refused is None:
        return logits_of(loaded.model, TOKENS)
    assert str(folder) in str(refused)
    assert str(refused).encode()
    return None


def flip(content: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(content)
    changed[position % len(content)] ^= 1 << bit
    return bytes(changed)


def header_size(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


@SEVERAL
@given(position=st.integers(0, 1 << 20), bit=st.integers(0, 7))
@example(position=0, bit=0)
@example(position=7, bit=7)
def test_a_flipped_bit_in_a_header_is_refused_or_changes_nothing(whole, position, bit):
    path = whole / "model.safetensors"
    content = path.read_bytes()
    wanted = logits_of(load_folder(whole).model, TOKENS)
    path.write_bytes(flip(content, position % header_size(content), bit))
    try:
        found = refused_or_loads(whole)
    finally:
        path.write_bytes(content)
    assert found is None or torch.equal(found, wanted)


@settings(max_examples=30, deadline=None)
@given(position=st.integers(0, 1 << 40), bit=st.integers(0, 7))
def test_a_flipped_bit_in_a_weight_loads(whole, position, bit):
    path = whole / "model.safetensors"
    content = path.read_bytes()
    data = header_size(content)
    place = data + position % (len(content) - data)
    path.write_bytes(flip(content, place, bit))
    try:
        assert refused_or_loads(whole) is not None
    finally:
        path.write_bytes(content)


@SEVERAL
@given(
    file=st.sampled_from([*JSON_FILES, "special_tokens_map.json", "tokenizer.json"]),
    flips=st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 7)), min_size=1, max_size=3),
)
def test_flipped_bits_in_small_files_are_refused_or_load(whole, file, flips):
    path = whole / file
    content = path.read_bytes()
    changed = content
    for position, bit in flips:
        changed = flip(changed, position, bit)
    path.write_bytes(changed)
    try:
        refused_or_loads(whole)
    finally:
        path.write_bytes(content)


@SEVERAL
@given(position=st.integers(0, 1 << 30), bit=st.integers(0, 7))
def test_a_flipped_bit_in_an_index_is_refused_or_changes_nothing(sharded, position, bit):
    path = sharded / "model.safetensors.index.json"
    content = path.read_bytes()
    wanted = logits_of(load_folder(sharded).model, TOKENS)
    path.write_bytes(flip(content, position, bit))
    try:
        found = refused_or_loads(sharded)
    finally:
        path.write_bytes(content)
    assert found is None or torch.equal(found, wanted)


@SEVERAL
@given(share=st.floats(0, 1, exclude_max=True))
@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_cut_file_is_refused_by_name(whole, file, share):
    path = whole / file
    content = path.read_bytes()
    # the last byte of a JSON file may be a line's end
    path.write_bytes(content[: int(share * (len(content) - 1))])
    try:
        with pytest.raises(CheckpointError) as caught:
            load_folder(whole)
    finally:
        path.write_bytes(content)
    assert Path(caught.value.path).name == file


def test_a_file_with_more_at_its_end_is_refused(spoilt):
    with (spoilt / "model.safetensors").open("ab") as file:
        file.write(b"x" * 7)
    assert "7 bytes belong to no tensor" in str(refusal(spoilt))


WRONG = [None, True, -1, 0, 10**12, 10**400, 2.5, 1e300, "4", "x" * 10_000, [], [[]], {}, {"a": 1}]
NUMBERS = [
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
]


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", WRONG)
def test_a_wrong_size_is_refused_by_its_field(spoilt, field, value):
    data = json.loads((spoilt / "config.json").read_text()) | {field: value}
    (spoilt / "config.json").write_text(json.dumps(data))
    error = refusal(spoilt)
    assert Path(error.path).name == "config.json"
    assert error.part == field


@SEVERAL
@given(data=st.data())
def test_any_value_in_any_field_is_refused_or_loads(whole, data):
    file = data.draw(st.sampled_from(JSON_FILES))
    path = whole / file
    content = path.read_text()
    fields = json.loads(content)
    scalars = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**30), 10**30),
        st.integers(0, 64),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(
            ["", "yarn", "dynamic", "longrope", "linear", "\ud800", "sliding_attention"]
        ),
    )
    values = st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["rope_type", "type", "factor", "content", "name", "template"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=5,
    )
    extra = ["rope_scaling", "quantization_config", "head_dim", "mlp_bias", "hidden_act"]
    names = data.draw(
        st.lists(st.sampled_from([*fields, *extra]), min_size=1, max_size=3, unique=True)
    )
    for name in names:
        fields[name] = data.draw(values)
    path.write_text(json.dumps(fields))
    try:
        refused_or_loads(whole)
    finally:
        path.write_text(content)


HOSTILE = {
    "empty": b"",
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "a list": b"[]",
    "a number": b"7",
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 50_000,
    "deep and closed": b'{"hidden_size":' + b"[" * 500 + b"]" * 500 + b"}",
    "a name twice": b'{"hidden_size": 1, "hidden_size": 2}',
    "NaN": b'{"rms_norm_eps": NaN}',
    "infinity": b'{"rms_norm_eps": -Infinity}',
    "a number of many digits": b'{"hidden_size": ' + b"9" * 100_000 + b"}",
    "two objects": b"{}{}",
    "a cut text": b'{"hidden_size": "',
    "zero bytes": b"\0" * 1000,
    "many names": b"{" + b",".join(b'"%d":0' % n for n in range(200_000)) + b"}",
    "a name twice, late": b"{" + b",".join(b'"%d":0' % (n % 99_999) for n in range(100_000)) + b"}",
}


@pytest.mark.parametrize("file", ALL_JSON_FILES)
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_json_is_refused_by_file(shards, file, kind):
    (shards / file).write_bytes(HOSTILE[kind])
    if file in JSON_FILES[1:] or file == "special_tokens_map.json":
        # nothing in them is needed: what is JSON and no wrong field may load
        assert refused_or_loads(shards) is None or kind in ("deep and closed", "many names")
        return
    assert Path(refusal(shards).path).name == file


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_headers_are_refused_within_bounds(spoilt, kind):
    header = HOSTILE[kind]
    content = len(header).to_bytes(8, "little") + header
    (spoilt / "model.safetensors").write_bytes(content)
    assert Path(refusal(spoilt).path).name == "model.safetensors"


# what is left of the address space once the modules are in
BOUNDED = """
import resource, sys
from pathlib import Path
from noidle.errors import CheckpointError
from tensor_llm.families import read_directory
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]),) * 2)
try:
    read_directory(Path(sys.argv[1]))
except CheckpointError:
    pass
"""


@pytest.mark.parametrize("part", [b"[],", b"{},", b"9" * 4000 + b","])
@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer_config.json"])
def test_json_takes_no_more_memory_than_its_bound(spoilt, file, part):
    path = spoilt / file
    text = b'{"a":[' + part * ((LARGEST_HEADER_BYTES - 50) // len(part)) + b"0]}"
    head = len(text).to_bytes(8, "little") if file == "model.safetensors" else b""
    path.write_bytes(head + text)
    command = [sys.executable, "-c", BOUNDED, str(spoilt), str(MOST_BYTES)]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize(
    "length", [0, 1, 1 << 22, (1 << 22) + 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1]
)
def test_a_header_that_lies_about_its_length_is_refused(spoilt, length):
    path = spoilt / "model.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
    assert Path(refusal(spoilt).path).name == "model.safetensors"


@pytest.mark.parametrize(
    "file", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"]
)
def test_a_file_of_absurd_size_is_not_read(spoilt, file):
    path = spoilt / file
    os.truncate(path, 1 << 40)
    tracemalloc.start()
    try:
        assert Path(refusal(spoilt).path).name == file
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


def test_a_config_of_absurd_sizes_allocates_nothing(spoilt):
    edit_json(
        spoilt / "config.json",
        hidden_size=65_536,
        intermediate_size=1_000_000,
        vocab_size=4_000_000,
        num_hidden_layers=1024,
        layer_types=REMOVED,
        head_dim=8,
    )
    error = refusal(spoilt)
    assert error.part.startswith("model.layers.")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "nowhere"])
def test_what_is_no_plain_file_is_refused_and_does_not_hang(spoilt, file, kind):
    path = spoilt / file
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path if kind == "loop" else spoilt / "elsewhere")
    assert Path(refusal(spoilt).path).name == file


def test_links_as_in_a_download_cache_are_followed(tmp_path, whole):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    shutil.copytree(whole, blobs)
    snapshot.mkdir()
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(Path("..") / "blobs" / path.name)
    assert torch.equal(logits_of(load_folder(snapshot).model), logits_of(load_folder(whole).model))
    store = ModelStore(tmp_path / "data")
    add_model(store, snapshot, "mini")
    assert not any(path.is_symlink() for path in store.directory("mini").iterdir())


ESCAPES = [
    "../secret.safetensors",
    "/etc/passwd",
    "a/../../secret.safetensors",
    "sub/model.safetensors",
    "..",
    ".",
    "",
    ".hidden.safetensors",
    "model\0.safetensors",
    "model.safetensors\n",
    "C:\\model.safetensors",
    "model.bin",
    "x" * 300 + ".safetensors",
    7,
    None,
    ["model.safetensors"],
]


@pytest.mark.parametrize("target", ESCAPES)
def test_an_index_cannot_lead_out_of_its_folder(shards, target):
    (shards.parent / "secret.safetensors").write_bytes(
        next(shards.glob("*.safetensors")).read_bytes()
    )
    path = shards / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.norm.weight"] = target
    path.write_text(json.dumps(index))
    error = refusal(shards)
    assert Path(error.path).name == path.name
    assert error.part == "weight_map.model.norm.weight"


@pytest.mark.parametrize("weight_map", [None, [], {}, "model.safetensors", 3, {"a": {}}])
def test_an_index_that_is_none_is_refused(shards, weight_map):
    path = shards / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": weight_map}))
    error = refusal(shards)
    assert (Path(error.path).name, error.part[:10]) == (path.name, "weight_map")


def test_an_index_that_names_a_missing_file_is_refused_by_that_file(shards):
    file = sorted(shards.glob("*.safetensors"))[1]
    file.unlink()
    assert Path(refusal(shards).path) == file


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.Q4_0.gguf"])
def test_weights_in_another_form_are_named_with_the_way_out(spoilt, name):
    (spoilt / "model.safetensors").rename(spoilt / name)
    words = str(refusal(spoilt))
    assert name in words
    assert "save it as safetensors" in words


def test_a_note_in_the_place_of_weights_is_told_from_weights(spoilt):
    note = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n"
    (spoilt / "model.safetensors").write_text(note)
    assert "git lfs pull" in str(refusal(spoilt))


def test_an_index_that_puts_a_tensor_elsewhere_is_refused_by_the_tensor(shards):
    path = shards / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    files = sorted(set(index["weight_map"].values()))
    index["weight_map"]["model.norm.weight"] = next(
        one for one in files if one != index["weight_map"]["model.norm.weight"]
    )
    path.write_text(json.dumps(index))
    assert refusal(shards).part == "model.norm.weight"


def test_a_tensor_that_the_index_forgets_is_refused(shards):
    path = shards / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    del index["weight_map"]["model.norm.weight"]
    path.write_text(json.dumps(index))
    assert refusal(shards).part == "model.norm.weight"


KEY = "model.layers.0.self_attn.k_proj.weight"
TENSORS = {
    "missing": (lambda t: t.pop(KEY), KEY, "this tensor is missing"),
    "extra": (lambda t: t.update(spare=torch.zeros(2)), "spare", "no such tensor"),
    "unprintable": (
        lambda t: t.update({"\x1b[2J\n": torch.zeros(2)}),
        "'\\x1b'[2J'\\n'".replace("'", ""),
        "no such tensor",
    ),
    "ours among theirs": (
        lambda t: t.update({"norm.weight": t["model.norm.weight"].clone()}),
        "norm.weight",
        "no such tensor",
    ),
    "another layer": (
        lambda t: t.update({"model.layers.1.mlp.up_proj.weight": torch.zeros(80, 48)}),
        "model.layers.1.mlp.up_proj.weight",
        "no such tensor",
    ),
    "packed among theirs": (
        lambda t: t.update({f"{KEY}.scale": torch.zeros(2)}),
        f"{KEY}.scale",
        "no such tensor",
    ),
    "transposed": (
        lambda t: t.update({KEY: t[KEY].T.contiguous()}),
        KEY,
        r"shape (48, 16): the config wants (16, 48)",
    ),
    "flat": (lambda t: t.update({KEY: t[KEY].flatten()}), KEY, "the config wants (16, 48)"),
    "integers": (lambda t: t.update({KEY: t[KEY].int()}), KEY, "type I32: allowed is F32"),
    "doubles": (lambda t: t.update({KEY: t[KEY].double()}), KEY, "type F64: allowed is F32"),
    "eight bits": (
        lambda t: t.update({KEY: t[KEY].to(torch.float8_e4m3fn)}),
        KEY,
        "type F8_E4M3: allowed is F32",
    ),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_a_tensor_that_does_not_fit_is_refused_by_name(spoilt, kind):
    change, part, fault = TENSORS[kind]
    path = spoilt / "model.safetensors"
    tensors = {name: one.clone() for name, one in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)
    error = refusal(spoilt)
    assert (Path(error.path).name, error.part) == (path.name, part)
    assert fault in str(error)


def test_what_follows_from_the_config_may_be_there(spoilt, whole):
    """Old Llama files hold the angles' frequencies; some hold a tied head twice."""
    path = spoilt / "model.safetensors"
    tensors = dict(load_file(path))
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(tensors, path)
    assert torch.equal(logits_of(load_folder(spoilt).model), logits_of(load_folder(whole).model))


def test_a_tied_head_that_is_there_twice_loads(tmp_path):
    theirs = make_theirs("llama 3.2, tied")
    path = write_theirs(theirs, tmp_path) / "model.safetensors"
    tensors = dict(load_file(path))
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, path)
    assert torch.allclose(logits_of(load_folder(tmp_path).model), logits_of(theirs), atol=1e-3)
    tensors["lm_head.weight"] = torch.zeros(3, 48)
    save_file(tensors, path)
    assert refusal(tmp_path).part == "lm_head.weight"


@SEVERAL
@given(data=st.data())
def test_any_entry_of_a_header_is_refused_or_loads(whole, data):
    """Places that overlap, leave gaps, end before they begin or lie outside."""
    path = whole / "model.safetensors"
    content = path.read_bytes()
    size = header_size(content)
    header = json.loads(content[8:size])
    name = data.draw(st.sampled_from(sorted(set(header) - {"__metadata__"})))
    places = st.integers(-8, len(content)) | st.integers(-(2**64), 2**64) | st.just(True)
    field = data.draw(st.sampled_from(["dtype", "shape", "data_offsets", "__metadata__", "more"]))
    values = {
        "dtype": st.sampled_from(["F64", "U8", "f32", "", None, 3, [], "I128"]),
        "shape": st.lists(places, max_size=10),
        "data_offsets": st.lists(places, max_size=3),
        "__metadata__": st.sampled_from([None, [], {"a": 1}, {"a": {}}, 7]),
        "more": st.just(1),
    }
    value = data.draw(values[field])
    if field == "__metadata__":
        header[field] = value
    else:
        header[name][field] = value
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[size:])
    try:
        same = json.loads(content[8:size]).get(name, {}).get(field) == value
        assert (refused_or_loads(whole) is None) or same
    finally:
        path.write_bytes(content)


FIELDS = {
    "another architecture": ({"architectures": ["MambaForCausalLM"]}, "architectures", "Mamba"),
    "a classifier": (
        {"architectures": ["LlamaForSequenceClassification"]},
        "architectures",
        "LlamaForSequenceClassification",
    ),
    "no architecture": (
        {"architectures": None, "model_type": "gemma"},
        "model_type",
        "'gemma' is not supported; allowed is one of llama, mistral, qwen2, qwen3",
    ),
    "another activation": ({"hidden_act": "gelu"}, "hidden_act", "'gelu': allowed is 'silu'"),
    "quantised elsewhere": (
        {"quantization_config": {"quant_method": "gptq"}},
        "quantization_config",
        "plain weights",
    ),
    "dynamic angles": (
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        "rope_scaling.type",
        "'dynamic': allowed is one of default, linear, llama3, yarn",
    ),
    "longrope": (
        {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}},
        "rope_scaling.rope_type",
        "'longrope'",
    ),
    "part of a head": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor", "0.5"),
    "no factor": ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor", "missing"),
    "a negative factor": (
        {"rope_scaling": {"rope_type": "linear", "factor": -2.0}},
        "rope_scaling",
        "factor = -2.0",
    ),
    "windows without one": (
        {"layer_types": ["sliding_attention"]},
        "layer_types",
        "full_attention only",
    ),
    "windows for other layers": ({"layer_types": ["full_attention"] * 2}, "layer_types", "1 texts"),
    "an odd head": ({"head_dim": 7}, "head_dim", "7: allowed is an even number"),
    "heads that do not divide": (
        {"num_key_value_heads": 4},
        "num_attention_heads",
        "allowed is a multiple",
    ),
    "an end outside the vocabulary": ({"eos_token_id": 307}, "eos_token_id", "307"),
}


@pytest.mark.parametrize("kind", FIELDS)
def test_what_is_not_computed_is_refused_by_its_field(spoilt, kind):
    fields, part, fault = FIELDS[kind]
    (spoilt / "generation_config.json").unlink()
    data = json.loads((spoilt / "config.json").read_text()) | fields
    (spoilt / "config.json").write_text(json.dumps(data))
    error = refusal(spoilt)
    assert (Path(error.path).name, error.part) == ("config.json", part)
    assert fault in str(error)


@pytest.mark.parametrize("format_", WeightFormat)
def test_packed_weights_that_do_not_fit_are_refused_by_name(tmp_path, whole, format_):
    store = ModelStore(tmp_path)
    add_model(store, whole, "mini", format=format_)
    folder = store.directory("mini")
    path = folder / "model.safetensors"
    tensors = {name: one.clone() for name, one in load_file(path).items()}
    name = "layers.0.mlp.up.weight"
    codes, scales = f"{name}.{format_}", f"{name}.scale"
    spoilings = {
        "no scales": lambda t: t.pop(scales),
        "no codes": lambda t: t.pop(codes),
        "fewer rows": lambda t: t.update({codes: t[codes][1:], scales: t[scales][1:]}),
        "more groups": lambda t: t.update({scales: t[scales].repeat(1, 8, 1)}),
        "no groups": lambda t: t.update({scales: t[scales][:, :0].clone()}),
        "other types": lambda t: t.update({scales: t[scales].float()}),
        "signed codes": lambda t: t.update({codes: t[codes].to(torch.int8)}),
        "flat codes": lambda t: t.update({codes: t[codes].flatten()}),
        "both": lambda t: t.update({name: torch.zeros(80, 48)}),
    }
    for kind, spoil in spoilings.items():
        changed = dict(tensors)
        spoil(changed)
        save_file(changed, path)
        for dtype in (None, torch.float32):
            with pytest.raises(CheckpointError) as caught:
                load_folder(folder, dtype=dtype)
            assert name in caught.value.part, kind


def test_a_second_reader_is_not_misled_by_a_header_that_changed(spoilt):
    """Between looking and reading a file may be replaced."""
    source = read_directory(spoilt)
    path = spoilt / "model.safetensors"
    path.write_bytes(path.read_bytes()[:2000])
    from tensor_llm.assembly import assemble

    for dtype in (None, torch.bfloat16):
        with pytest.raises(CheckpointError, match="it was cut"):
            assemble(source, device_of=lambda _: torch.device("cpu"), dtype=dtype)


def test_random_bytes_are_never_a_model(spoilt):
    chance = random.Random(5)
    for file in ("model.safetensors", *JSON_FILES, "tokenizer.json"):
        content = (spoilt / file).read_bytes()
        for size in (1, 9, 100, 5000):
            (spoilt / file).write_bytes(chance.randbytes(size))
            assert Path(refusal(spoilt).path).name == file
        (spoilt / file).write_bytes(content)
