"""How large a model's cache gets."""

import pytest
import torch

from engines.tensor.device import Device
from engines.tensor.opening import SMALLEST_CAPACITY, MemoryOpener
from engines.tensor.porter import Progress
from engines.tensor.rates import RateBook
from noidle.jobs import ModelShape
from tensor_llm.checkpoint import save_model
from tensor_llm.config import ModelConfig
from tensor_llm.model import new_decoder
from tensor_llm.store import ModelStore
from tensor_llm.tokenizer import Tokenizer

CPU = torch.device("cpu")
CONTEXT = 1024
SLOTS = 4
CONFIG = ModelConfig.of_shape(
    ModelShape(layers=2, hidden=16, heads=2, kv_heads=1, vocabulary=257, context=CONTEXT)
)
WEIGHTS = CONFIG.parameters * 4
ROW = CONFIG.kv_bytes_per_token(4) * CONTEXT


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = ModelStore(tmp_path_factory.mktemp("store"))
    save_model(
        store,
        "m",
        "step-000000-x",
        model=new_decoder(CONFIG, 1),
        tokenizer=Tokenizer.train(["a text"], 257),
        step=0,
        bytes_per_token=1.0,
    )
    store.set_current("m", "step-000000-x")
    return store


def opener(store, limit_bytes=None):
    device = Device(first=CPU, second=None, dtype=torch.float32, label="")
    clock = iter(range(100)).__next__
    return MemoryOpener(
        store,
        device,
        slots=SLOTS,
        limit_bytes=limit_bytes,
        rates=RateBook(clock),
        clock=clock,
    )


@pytest.mark.parametrize(
    ("sentence", "room", "rows", "capacity"),
    [
        ("plenty gives a row a slot", 1 << 30, SLOTS, CONTEXT),
        ("an unknown room is taken for plenty", None, SLOTS, CONTEXT),
        ("less gives fewer rows", WEIGHTS + 2 * ROW, 2, CONTEXT),
        ("less than a row cuts the context", WEIGHTS + ROW // 2, 1, CONTEXT // 2),
        ("but only so far", WEIGHTS + 1, 1, SMALLEST_CAPACITY),
    ],
)
def test_the_cache_is_as_large_as_memory_allows(store, sentence, room, rows, capacity):
    marks = []
    progress = Progress(lambda: marks.append(1) or 0.0, 60)
    resident = opener(store).open(store.info("m"), room, progress)
    assert (resident.runner.rows, resident.runner.capacity) == (rows, capacity)
    assert resident.bytes == WEIGHTS + rows * CONFIG.kv_bytes_per_token(4) * capacity
    assert len(marks) > 10, "a load shows signs of life"


def test_a_limit_counts_what_models_have_taken(store):
    assert opener(store, limit_bytes=1000).room_bytes(300) == 700


def test_without_a_limit_the_room_is_what_the_machine_has_free(store):
    assert 0 < opener(store).room_bytes(0) < 1 << 50


def test_the_least_a_model_takes_is_its_weights_and_a_short_row(store):
    least = opener(store).needed_bytes(store.info("m"))
    assert least == WEIGHTS + CONFIG.kv_bytes_per_token(4) * SMALLEST_CAPACITY
