"""Measured rates win; what was not measured is guessed from the model's size."""

import pytest

from noidle.snapshot import ModelInfo, Rates
from routing.prediction import kv_tokens, prompt_tokens, speed_of
from tests.unit.routing.builders import MODEL, make_pool

LARGE = ModelInfo(
    name="large", storage="disk-1", parameters=7_000_000_000, weight_bytes=14_000_000_000
)


def test_measured_rates_win() -> None:
    rates = Rates(
        prefill_tokens_per_s=500,
        step_s=0.02,
        step_s_per_sequence=0.003,
        load_bytes_per_s=7e9,
        train_tokens_per_s=80,
    )
    speed = speed_of(make_pool(rates=rates), LARGE)
    assert (speed.prefill_s, speed.step_s, speed.step_s_per_sequence) == (0.002, 0.02, 0.003)
    assert (speed.load_s, speed.train_tokens_per_s) == (2.0, 80)


def test_unmeasured_engines_rank_as_their_hardware_does() -> None:
    steps = {
        name: speed_of(make_pool(f"{name}@a", rates=Rates()), LARGE).step_s
        for name in ("cpu", "hybrid", "cuda", "gpu")
    }
    assert sorted(steps, key=lambda name: steps[name]) == ["cuda", "gpu", "hybrid", "cpu"]


def test_gpu_is_guessed_to_train_fastest() -> None:
    rates = {
        name: speed_of(make_pool(f"{name}@a", rates=Rates()), LARGE).train_tokens_per_s
        for name in ("cpu", "hybrid", "cuda", "gpu")
    }
    assert max(rates, key=lambda name: rates[name]) == "gpu"


def test_a_stand_in_is_not_guessed_faster_than_the_cpu() -> None:
    stand_in = speed_of(make_pool("cuda@a", rates=Rates(), stand_in=True), LARGE)
    assert stand_in.step_s > speed_of(make_pool("cpu@a", rates=Rates()), LARGE).step_s


def test_a_larger_model_is_guessed_slower() -> None:
    pool = make_pool(rates=Rates())
    assert speed_of(pool, LARGE).step_s > 10 * speed_of(pool, MODEL).step_s


def test_one_measured_number_a_step_means_that_the_batch_does_not_matter() -> None:
    assert speed_of(make_pool(rates=Rates(step_s=0.1)), LARGE).step_s_per_sequence == 0


def test_a_built_in_model_needs_no_loading() -> None:
    assert speed_of(make_pool(rates=Rates()), ModelInfo(name="echo")).load_s == 0


def test_a_prompts_tokens_follow_the_models_bytes_a_token() -> None:
    assert prompt_tokens(400, MODEL) == 101
    assert prompt_tokens(400, MODEL.model_copy(update={"bytes_per_token": 2.0})) == 201
    assert prompt_tokens(0, MODEL) == 1


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "wanted"), [(1, 15, 16), (1, 16, 32), (4000, 90, 4096)]
)
def test_kv_cache_is_counted_in_blocks(prompt: int, max_tokens: int, wanted: int) -> None:
    assert kv_tokens(prompt, max_tokens, MODEL) == wanted


def test_no_run_needs_more_kv_cache_than_the_context() -> None:
    assert kv_tokens(5000, 3000, MODEL) == 4096
    assert kv_tokens(5000, 3000, ModelInfo(name="m")) == 8000
