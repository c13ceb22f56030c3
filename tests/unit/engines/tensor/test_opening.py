"""How large a model's cache gets, and what is told of a load."""

import dataclasses

import pytest
import torch

from engines.tensor.device import Device
from engines.tensor.opening import CACHE_SHARE, SMALLEST_CAPACITY, MemoryOpener
from engines.tensor.porter import Progress
from engines.tensor.rates import RateBook
from engines.tensor.touch import weights_of
from noidle.jobs import ModelShape
from tensor_llm.checkpoint import save_model
from tensor_llm.config import ModelConfig
from tensor_llm.kernels.linear import PackedLinear
from tensor_llm.model import new_decoder
from tensor_llm.quantization import WeightFormat
from tensor_llm.serving.request import Request
from tensor_llm.store import ModelStore
from tensor_llm.tokenizer import Tokenizer

CPU = torch.device("cpu")
CONTEXT = 1024
SLOTS = 4
CONFIG = ModelConfig.of_shape(
    ModelShape(layers=2, hidden=64, heads=2, kv_heads=1, vocabulary=272, context=CONTEXT)
)
WEIGHTS = CONFIG.parameters * 4
TOKEN = CONFIG.kv_bytes_per_token(4)
RUN = TOKEN * CONTEXT


def put(store, name, model):
    save_model(
        store,
        name,
        "step-000000-x",
        model=model,
        tokenizer=Tokenizer.train(["a text"], 257),
        step=0,
        bytes_per_token=1.0,
    )
    store.set_current(name, "step-000000-x")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = ModelStore(tmp_path_factory.mktemp("store"))
    put(store, "m", new_decoder(CONFIG, 1))
    put(store, "narrow", new_decoder(CONFIG, 1).bfloat16())
    return store


class World:
    def __init__(self, store, *, limit_bytes=None, second=None, **device):
        self.store, self.said, self.marks = store, [], []
        self.rates = RateBook(lambda: 0.0)
        settings = {"dtype": torch.float32, **device}
        self.opener = MemoryOpener(
            store,
            Device(first=CPU, second=second, label="", **settings),
            slots=SLOTS,
            limit_bytes=limit_bytes,
            rates=self.rates,
            part_tokens=lambda model: 64,
            say=self.said.append,
            clock=iter(range(1000)).__next__,
        )

    def open(self, name="m", room=1 << 30):
        progress = Progress(lambda: self.marks.append(1) or 0.0, 60)
        return self.opener.open(self.store.info(name), room, progress)


def spare(runs):
    """Memory of which the cache gets that of so many runs."""
    return WEIGHTS + int(runs * RUN / CACHE_SHARE)


@pytest.mark.parametrize(
    ("sentence", "room", "tokens", "capacity"),
    [
        ("plenty gives a whole context a slot", 1 << 30, SLOTS * CONTEXT, CONTEXT),
        ("an unknown room is taken for plenty", None, SLOTS * CONTEXT, CONTEXT),
        ("less is shared with models to come", spare(2), 2 * CONTEXT, CONTEXT),
        ("but one whole run goes before others", WEIGHTS + RUN, CONTEXT, CONTEXT),
        ("less than that cuts the context", WEIGHTS + RUN // 2, CONTEXT // 2, CONTEXT // 2),
        ("but only so far", WEIGHTS + 1, SMALLEST_CAPACITY, SMALLEST_CAPACITY),
    ],
)
@pytest.mark.parametrize("second", [None, CPU], ids=["whole", "split"])
def test_the_cache_is_as_large_as_memory_allows(store, second, sentence, room, tokens, capacity):
    world = World(store, second=second)
    resident = world.open(room=room)
    assert (resident.core.kv_tokens_total, resident.capacity) == (tokens, capacity)
    assert resident.context == CONTEXT
    assert resident.bytes == WEIGHTS + tokens * TOKEN
    assert len(world.marks) > 10, "a load shows signs of life"
    resident.core.close()


def bytes_of(model):
    """As its weights lie; those that two parts share lie once."""
    tensors = {one.data_ptr(): one for one in weights_of(model)}
    return sum(one.numel() * one.element_size() for one in tensors.values())


@pytest.mark.parametrize(
    ("name", "device", "most"),
    [
        ("m", {"dtype": None}, 1.0),
        ("narrow", {"dtype": None}, 0.5),
        ("narrow", {"dtype": torch.float32}, 1.0),
        ("m", {"dtype": torch.bfloat16}, 0.5),
        ("m", {"dtype": None, "format": WeightFormat.INT8}, 0.35),
        ("m", {"dtype": None, "format": WeightFormat.INT4}, 0.25),
    ],
)
def test_weights_are_counted_as_they_lie(store, name, device, most):
    world = World(store, **device)
    resident = world.open(name)
    assert resident.weight_bytes == bytes_of(resident.core.executor.model)
    assert resident.weight_bytes <= most * WEIGHTS
    needed = world.opener.needed_bytes(store.info(name))
    assert resident.weight_bytes < needed <= resident.weight_bytes + SMALLEST_CAPACITY * TOKEN


def test_a_format_packs_the_weights_as_they_load(store):
    resident = World(store, dtype=None, format=WeightFormat.INT8).open()
    modules = resident.core.executor.model.modules()
    packed = [one.packed for one in modules if isinstance(one, PackedLinear)]
    assert {one.format for one in packed} == {WeightFormat.INT8}


def test_a_limit_counts_what_models_have_taken(store):
    assert World(store, limit_bytes=1000).opener.room_bytes(300) == 700


def test_without_a_limit_the_room_is_what_the_machine_has_free(store):
    assert 0 < World(store).opener.room_bytes(0) < 1 << 50


def test_a_cache_that_is_not_used_yet_is_not_given_away_again(store):
    """Memory that was promised and not written to still looked free, so that the next model
    was promised it as well."""
    opener = World(store).opener
    whole = opener.room_bytes(0)
    assert opener.room_bytes(whole // 2) <= whole - whole // 2


def test_the_least_a_model_takes_is_its_weights_and_a_short_run(store):
    least = World(store).opener.needed_bytes(store.info("m"))
    assert least == WEIGHTS + TOKEN * SMALLEST_CAPACITY


def test_a_load_is_told_with_its_temperature_and_the_working_set(store):
    world = World(store)
    resident = world.open()
    (said,) = world.said
    assert said.startswith("m step-000000-x is in memory after ")
    assert any(f"({one})" in said for one in ("cold", "warm", "unmeasured"))
    assert "working set" in said
    assert f"{resident.core.kv_tokens_total} tokens" in said


def test_an_answer_ends_with_the_tokens_of_the_config_or_of_the_tokenizer(store, tmp_path):
    named = ModelStore(tmp_path)
    put(named, "named", new_decoder(dataclasses.replace(CONFIG, eos_tokens=(5, 6)), 1))
    assert World(named).open("named").eos_tokens == {5, 6}
    resident = World(store).open()
    assert resident.eos_tokens == {resident.tokenizer.eos_token}


def test_an_opened_model_answers(store):
    core = World(store).open().core
    sequence = core.add(Request(tokens=(1, 2, 3), max_tokens=4))
    while core.busy:
        core.step()
    assert len(sequence.tokens) == 7


def test_who_waits_for_a_compiler_is_told(store, monkeypatch):
    world = World(store)
    monkeypatch.setattr("engines.tensor.opening.must_build", lambda: True)
    world.opener.prepare(Progress(lambda: 0.0, 60))
    assert any("C++ kernels" in said for said in world.said)


def test_a_step_takes_more_memory_the_more_it_reads_and_for_every_row(store):
    world = World(store)
    memory = world.open("m").step_memory
    # at the least what the wider half of a layer computes, and the logits of all rows
    assert memory.token_bytes >= 3 * CONFIG.mlp * 4
    assert memory.fixed_bytes >= SLOTS * (CONFIG.vocabulary * 4 + memory.token_bytes)
    assert memory.bytes(512) > memory.bytes(64) > memory.bytes(0) > 0
    exact = memory.fixed_bytes + 512 * memory.token_bytes
    assert exact <= memory.bytes(512) <= 1.25 * exact
    # what is a little faster or slower is not told anew
    assert memory.bytes(500) == memory.bytes(501)
    assert world.open("narrow").step_memory.token_bytes <= memory.token_bytes


def test_loading_is_measured_by_the_size_of_the_files_that_routers_know(store):
    """Weights packed while they load were told four to eight times slower to load."""
    world = World(store, format=WeightFormat.INT8, dtype=None)
    resident = world.open("m")
    info = store.info("m")
    assert resident.weight_bytes < info.weight_bytes
    seconds = info.weight_bytes / world.rates.load.per_s
    assert seconds == pytest.approx(round(seconds))
    assert world.rates.of("m").weight_bytes == info.weight_bytes
