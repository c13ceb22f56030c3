"""A model over two devices, here both the CPU."""

import itertools

import pytest
import torch

from engines.tensor.device import Device
from engines.tensor.hybrid import HybridExecutor, choose_split
from noidle.jobs import ModelShape
from tensor_llm.config import ModelConfig
from tensor_llm.generate import generate
from tensor_llm.kernels.library import best_kernels
from tensor_llm.model import new_decoder
from tensor_llm.serving.core import Core
from tensor_llm.serving.kernel_executor import KernelExecutor
from tensor_llm.serving.request import Request
from tensor_llm.split import LayerSplit

CPU = torch.device("cpu")
BOTH = Device(first=CPU, second=CPU, dtype=torch.float32, label="")
PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [16, 17], [18]]


def config(layers=3, tied=True, hidden=16):
    shape = ModelShape(
        layers=layers,
        hidden=hidden,
        heads=2,
        kv_heads=1,
        vocabulary=257,
        context=64,
        tied_head=tied,
    )
    return ModelConfig.of_shape(shape)


class Watched(HybridExecutor):
    """Knows which sequences decoded in each step."""

    def __init__(self, model, split):
        super().__init__(model, split, blocks=16, block_tokens=16, dtype=torch.float32)
        self.model = model
        self.decoded = []

    def run(self, batch):
        if batch.decodes:
            self.decoded.append(set(batch.sequence_M[: batch.decodes].tolist()))
        return super().run(batch)


CUTS = [
    (3, 1, True, 16),
    (3, 2, False, 16),
    (1, 1, True, 16),
    (2, 2, True, 16),
    # of a size that the C++ kernels take
    (3, 2, True, 64),
]


@pytest.fixture(params=CUTS, ids=str)
def executor(request):
    layers, cut, tied, hidden = request.param
    model = new_decoder(config(layers, tied, hidden), 1)
    one = Watched(model, LayerSplit(first=CPU, second=CPU, layer=cut))
    yield one
    one.close()


def answers(core, requests):
    sequences = [core.add(request) for request in requests]
    while core.busy:
        for output in core.step():
            assert output.error is None
    return [one.tokens[len(one.request.tokens) :] for one in sequences]


def test_a_split_model_says_what_the_whole_one_says(executor):
    core = Core(executor, rows=4, chunk_tokens=5)
    requests = [Request(tokens=tuple(prompt), max_tokens=12) for prompt in PROMPTS]
    wanted = [generate(executor.model, p, max_tokens=12, cached=False) for p in PROMPTS]
    assert answers(core, requests) == wanted


def test_the_stages_work_on_two_steps_of_disjoint_sequences(executor):
    core = Core(executor, rows=4, chunk_tokens=5)
    answers(core, [Request(tokens=tuple(prompt), max_tokens=12) for prompt in PROMPTS])
    both = [one & other for one, other in itertools.pairwise(executor.decoded)]
    # while several decode, one half follows the other
    assert both.count(set()) > len(both) / 2


def test_scores_are_those_of_the_whole_model(executor):
    core = Core(executor, rows=2, chunk_tokens=4)
    core.add(Request(tokens=tuple(PROMPTS[1]), max_tokens=0, score=True))
    logprobs = []
    while core.busy:
        logprobs += [one for output in core.step() for one in output.logprobs]
    with torch.inference_mode():
        share_TV = executor.model(torch.tensor([PROMPTS[1][:-1]]))[0].log_softmax(-1)
    wanted = share_TV.gather(-1, torch.tensor(PROMPTS[1][1:])[:, None])[:, 0]
    assert logprobs == pytest.approx(wanted.tolist(), abs=1e-5)


def test_a_step_that_fails_harms_only_the_sequence_at_fault(executor):
    core = Core(executor, rows=4, chunk_tokens=5)
    good = core.add(Request(tokens=tuple(PROMPTS[0]), max_tokens=12))
    # beyond the vocabulary
    bad = core.add(Request(tokens=(1, 100_000), max_tokens=3))
    errors = {}
    while core.busy:
        errors |= {one.sequence: one.error for one in core.step() if one.error}
    assert list(errors) == [bad]
    assert good.tokens[3:] == generate(executor.model, PROMPTS[0], max_tokens=12, cached=False)
    assert core.kv_tokens_free == core.kv_tokens_total


@pytest.mark.skipif(best_kernels() is None, reason="the C++ kernels cannot be built here")
def test_layers_on_the_cpu_run_in_the_kernels_where_they_can():
    split = LayerSplit(first=CPU, second=CPU, layer=1)
    halves = [Watched(new_decoder(config(2, hidden=size), 1), split)._halves for size in (64, 16)]
    assert [isinstance(one, KernelExecutor) for one in halves[0]] == [True, True]
    assert [isinstance(one, KernelExecutor) for one in halves[1]] == [False, False]


@pytest.mark.parametrize(
    ("layers", "most_on_second", "cuts"),
    [(8, 8, range(1, 8)), (8, 2, range(6, 8)), (8, 0, [8]), (1, 1, [1]), (2, 2, [1])],
)
def test_each_side_gets_layers_and_no_more_than_it_can_hold(layers, most_on_second, cuts):
    split = choose_split(
        config(layers),
        BOTH,
        dtype=torch.float32,
        rows=4,
        most_on_second=most_on_second,
        on_part=lambda: None,
    )
    assert split.layer in cuts
