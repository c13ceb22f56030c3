"""The same promises on whatever accelerator torch finds; float32 products are exact there too,
as torch leaves TF32 off."""

import pytest
import torch

from tensor_llm.checkpoint import load_model, save_model
from tensor_llm.data import Corpus
from tensor_llm.generate import generate
from tensor_llm.model import new_decoder
from tensor_llm.sampling import Sampling, SamplingBatch, sample
from tensor_llm.score import score
from tensor_llm.serving.core import Core
from tensor_llm.serving.paged import PagedCache
from tensor_llm.serving.request import Request
from tensor_llm.serving.torch_executor import TorchExecutor
from tensor_llm.split import LayerSplit
from tensor_llm.store import ModelStore
from tensor_llm.train_plan import TrainPlan
from tensor_llm.training import Trainer
from tests.unit.tensor_llm.builders import (
    TEXT,
    make_config,
    make_model,
    make_tokenizer,
    random_tokens,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.accelerator.is_available(), reason="torch finds no accelerator on this machine"
    ),
]
SIZES = {"hidden": 64, "heads": 6, "kv_heads": 2, "head_size": 16, "context": 256}


@pytest.fixture
def device() -> torch.device:
    found = torch.accelerator.current_accelerator()
    assert found is not None
    return found


def test_cached_and_uncached_generation_agree_token_for_token(device):
    model = make_model(**SIZES).to(device)
    for seed in range(4):
        prompt = random_tokens(5 + 20 * seed, seed)
        sampling = Sampling(temperature=seed % 2, seed=seed)
        options = {"max_tokens": 24, "sampling": sampling}
        assert generate(model, prompt, **options, chunk=16) == generate(
            model, prompt, **options, cached=False
        )


def make_core(model, rows: int = 4, blocks: int = 96, **options) -> Core:
    weight = model.norm.weight
    cache = PagedCache(model.config, blocks=blocks, device=weight.device, dtype=weight.dtype)
    return Core(TorchExecutor(model, cache), rows=rows, **options)


def finish(core: Core) -> None:
    while core.busy:
        for output in core.step():
            assert output.error is None
        core.check()


@pytest.mark.parametrize("window", [None, 40])
def test_a_crowd_gets_the_tokens_that_each_gets_alone(device, window):
    """Chunks, evictions and equal beginnings, with steps launched ahead."""
    model = make_model(**SIZES, window=window).to(device)
    prompts = [random_tokens(count, count % 2) for count in (3, 90, 31, 170, 90, 60)]
    samplings = [Sampling(temperature=n % 2, top_p=0.9, seed=n) for n in range(6)]
    wanted = [
        generate(model, prompt, max_tokens=20, sampling=sampling, cached=False)
        for prompt, sampling in zip(prompts, samplings, strict=True)
    ]
    core = make_core(model, blocks=20, chunk_tokens=50)
    assert core.executor.asynchronous == (device.type == "cuda")
    sequences = [
        core.add(Request(tokens=tuple(prompt), max_tokens=20, sampling=sampling, logprobs=True))
        for prompt, sampling in zip(prompts, samplings, strict=True)
    ]
    finish(core)
    for prompt, sequence, tokens in zip(prompts, sequences, wanted, strict=True):
        assert sequence.tokens[len(prompt) :] == tokens
    assert core.kv_tokens_free == core.kv_tokens_total


# torch warns that the mode does not find every wait
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_decode_step_waits_for_the_device_only_to_read_its_tokens(device, temperature):
    """Nor do steps in which somebody joins, reads, or grows into another block."""
    if device.type != "cuda":
        pytest.skip("only CUDA tells who waits")
    model = make_model(**SIZES, window=50).to(device)
    core = make_core(model, rows=8, blocks=128, chunk_tokens=32)

    def add(count: int) -> None:
        for n in range(count):
            sampling = Sampling(temperature=temperature, top_k=20, top_p=0.9, seed=n)
            prompt = tuple(random_tokens(40 + n, n))
            core.add(Request(tokens=prompt, max_tokens=60, sampling=sampling, logprobs=n % 2 == 0))

    add(3)
    # the first steps also pay for what torch sets up
    for _ in range(12):
        core.step()
    try:
        torch.cuda.set_sync_debug_mode("error")
        add(2)
        for _ in range(30):
            assert all(output.error is None for output in core.step())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    finish(core)


def test_logits_and_scores_are_those_of_the_cpu(device):
    model, tokens = make_model(**SIZES), random_tokens(200)
    wanted = score(model, tokens)
    assert score(model.to(device), tokens, chunk=64) == pytest.approx(wanted, rel=1e-3, abs=1e-4)


def test_bfloat16_stays_near_float32(device):
    model, tokens = make_model(**SIZES), random_tokens(200)
    wanted = score(model, tokens)
    found = score(model.bfloat16().to(device), tokens, chunk=64)
    assert found == pytest.approx(wanted, abs=0.2)


def test_sampling_draws_what_the_cpu_draws(device):
    logits_BV = 3 * torch.randn(64, 5000, generator=torch.Generator().manual_seed(0))
    rows = [
        Sampling(temperature=0.5 + row % 3, top_k=[None, 40][row % 2], top_p=0.9, seed=row)
        for row in range(64)
    ]
    positions = list(range(64))
    wanted_B = sample(logits_BV, SamplingBatch.of(rows), positions)
    found_B = sample(logits_BV.to(device), SamplingBatch.of(rows, device), positions)
    # sums are rounded in another order: a draw may fall on the other side of a border
    assert int((found_B.cpu() != wanted_B).sum()) <= 1


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_training_follows_the_curve_of_the_cpu_and_resumes_exactly(device, autocast):
    corpus = Corpus.of([TEXT[600:]], [TEXT[:600]], make_tokenizer())
    plan = TrainPlan(
        seed=1,
        steps=8,
        batch=4,
        accumulate=2,
        sequence=32,
        learning_rate=0.01,
        warmup_steps=2,
        weight_decay=0.1,
        clip_norm=1.0,
    )
    config = make_config(**(SIZES | {"vocabulary": 300}))
    on_cpu = Trainer(new_decoder(config, 1), corpus, plan)
    wanted = [on_cpu.step() for _ in range(6)]
    there = Trainer(new_decoder(config, 1).to(device), corpus, plan, autocast=autocast)
    curve = [there.step() for _ in range(4)]
    copy = new_decoder(config, 2).to(device)
    copy.load_state_dict(there.model.state_dict())
    resumed = Trainer(copy, corpus, plan, state=there.state(), autocast=autocast)
    rest = [resumed.step() for _ in range(2)]
    # sums of gradients come in no fixed order there
    assert rest == pytest.approx([there.step() for _ in range(2)], rel=1e-3)
    assert curve + rest == pytest.approx(wanted, rel=0.05 if autocast else 0.01)


def test_a_model_loads_onto_two_devices_and_answers_as_one(device, tmp_path):
    store, model = ModelStore(tmp_path), make_model(**(SIZES | {"vocabulary": 300}))
    save_model(
        store, "m", "r", model=model, tokenizer=make_tokenizer(), step=0, bytes_per_token=2.0
    )
    split = LayerSplit(first=torch.device("cpu"), second=device, layer=1)
    both = load_model(store, "m", "r", place=split.device_of).model
    token_BT = torch.tensor([random_tokens(40)])
    with torch.inference_mode():
        x_BTE = both.run_layers(both.embed(token_BT), stop=1).to(device)
        found_BTV = both.head(both.run_layers(x_BTE, start=1))
        torch.testing.assert_close(found_BTV.cpu(), model(token_BT), rtol=1e-3, atol=1e-4)
    whole = load_model(store, "m", "r", place=device).model
    assert {parameter.device.type for parameter in whole.parameters()} == {device.type}
