"""A model over two devices, here both the CPU."""

import pytest
import torch

from engines.tensor.device import Device
from engines.tensor.hybrid import HybridRunner, choose_split
from noidle.jobs import ModelShape
from tensor_llm.config import ModelConfig
from tensor_llm.generate import generate
from tensor_llm.model import new_decoder
from tensor_llm.split import LayerSplit

CPU = torch.device("cpu")
BOTH = Device(first=CPU, second=CPU, dtype=torch.float32, label="")


def config(layers=3, tied=True):
    shape = ModelShape(
        layers=layers, hidden=16, heads=2, kv_heads=1, vocabulary=257, context=64, tied_head=tied
    )
    return ModelConfig.of_shape(shape)


@pytest.fixture(params=[(3, 1, True), (3, 2, False), (1, 1, True), (2, 2, True)], ids=str)
def runner(request):
    layers, cut, tied = request.param
    model = new_decoder(config(layers, tied), 1)
    split = LayerSplit(first=CPU, second=CPU, layer=cut)
    one = HybridRunner(model, split, rows=4, capacity=64, dtype=torch.float32)
    one.model = model
    yield one
    one.close()


def follow(runner, row, logits_V, count):
    tokens = [int(logits_V.argmax())]
    while len(tokens) < count:
        tokens.append(int(runner.decode([tokens[-1]], [row]).land()[0].argmax()))
    return tokens


def test_a_split_model_says_what_the_whole_one_says(runner):
    row = runner.claim()
    logits_V = runner.read([1, 2, 3, 4, 5], row, every=False)[-1]
    assert follow(runner, row, logits_V, 12) == generate(
        runner.model, [1, 2, 3, 4, 5], max_tokens=12
    )


def test_logits_after_every_token_are_those_of_the_whole_model(runner):
    logits_TV = runner.read([1, 2, 3, 4, 5], runner.claim(), every=True)
    with torch.inference_mode():
        wanted = runner.model(torch.tensor([[1, 2, 3, 4, 5]]))[0]
    assert torch.allclose(logits_TV, wanted, atol=1e-5)


def test_two_steps_are_under_way_at_once_and_land_in_any_order(runner):
    rows = [runner.claim() for _ in range(2)]
    prompts = [[1, 2, 3], [4, 5]]
    tokens = [
        [int(runner.read(prompt, row, every=False)[-1].argmax())]
        for prompt, row in zip(prompts, rows, strict=True)
    ]
    for _ in range(7):
        flights = [
            runner.decode([known[-1]], [row]) for known, row in zip(tokens, rows, strict=True)
        ]
        for known, flight in reversed(list(zip(tokens, flights, strict=True))):
            known.append(int(flight.land()[0].argmax()))
    for prompt, known in zip(prompts, tokens, strict=True):
        assert known == generate(runner.model, prompt, max_tokens=8)


def test_a_step_that_fails_can_be_taken_back_on_both_sides(runner):
    row = runner.claim()
    logits_V = runner.read([1, 2, 3], row, every=False)[-1]
    token = int(logits_V.argmax())
    with pytest.raises(IndexError):
        runner.decode([100_000], [row]).land()
    runner.truncate(row, 3)
    assert runner.length(row) == 3
    assert [token, *follow(runner, row, runner.decode([token], [row]).land()[0], 3)] == generate(
        runner.model, [1, 2, 3], max_tokens=4
    )


def test_rows_come_and_go_on_both_sides(runner):
    rows = [runner.claim() for _ in range(4)]
    assert runner.claim() is None
    runner.release(rows[2])
    assert runner.claim() == rows[2]


@pytest.mark.parametrize(
    ("layers", "most_on_second", "cuts"),
    [(8, 8, range(1, 8)), (8, 2, range(6, 8)), (8, 0, [8]), (1, 1, [1]), (2, 2, [1])],
)
def test_each_side_gets_layers_and_no_more_than_it_can_hold(layers, most_on_second, cuts):
    split = choose_split(
        config(layers), BOTH, rows=4, most_on_second=most_on_second, on_part=lambda: None
    )
    assert split.layer in cuts
