"""Measured rates win; what was not measured is guessed from the model's size."""

import pytest

from noidle.snapshot import ModelInfo, ModelRates, Rates
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


GUESS = speed_of(make_pool(rates=Rates()), LARGE)


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        # how many times faster than the guess it seems to be, of the 100 times it was measured
        (None, 100.0),
        (0.0, 100.0),
        (0.05, 98.9),
        (0.2, 83.8),
        (0.7, 22.0),
        (3.0, 1.58),
    ],
)
@pytest.mark.parametrize("faster", [100, 1 / 100])
def test_a_measured_rate_counts_as_far_as_it_is_sure(error, kept, faster) -> None:
    rates = Rates(
        prefill_tokens_per_s=faster / GUESS.prefill_s,
        step_s=GUESS.step_s / faster,
        step_s_per_sequence=GUESS.step_s_per_sequence / faster,
        prefill_error=error,
        step_error=error,
    )
    speed = speed_of(make_pool(rates=rates), LARGE)
    wanted = kept if faster > 1 else 1 / kept
    assert GUESS.prefill_s / speed.prefill_s == pytest.approx(wanted, rel=0.01)
    assert GUESS.step_s / speed.step_s == pytest.approx(wanted, rel=0.01)
    assert GUESS.step_s_per_sequence / speed.step_s_per_sequence == pytest.approx(wanted, rel=0.01)


def test_a_step_that_is_all_batch_stays_so_however_unsure() -> None:
    rates = Rates(step_s=0.0, step_s_per_sequence=0.01, step_error=0.5)
    speed = speed_of(make_pool(rates=rates), LARGE)
    assert speed.step_s == 0
    assert 0.01 < speed.step_s_per_sequence < GUESS.step_s


@pytest.mark.parametrize(
    ("spoilt", "first"), [(0.1, "b@a"), (10.0, "a@a")], ids=["looks quick", "looks slow"]
)
def test_one_spoilt_measurement_does_not_settle_which_pool_is_faster_for_good(
    spoilt, first
) -> None:
    """Of two pools that are alike one was measured well, the other once and wrongly."""
    sure = Rates(step_s=GUESS.step_s, step_s_per_sequence=0.0, step_error=0.03)
    unsure = sure.model_copy(update={"step_s": GUESS.step_s * spoilt, "step_error": 0.7})
    steps = {
        name: speed_of(make_pool(f"cpu.{name}", rates=rates), LARGE).step_s
        for name, rates in (("a@a", sure), ("b@a", unsure))
    }
    assert min(steps, key=lambda name: steps[name]) == first
    assert max(steps.values()) < 5 * min(steps.values())


def test_each_model_has_its_own_rates_where_a_pool_tells_them_apart() -> None:
    own = ModelRates(prefill_tokens_per_s=50, step_s=0.5, step_s_per_sequence=0.1)
    rates = Rates(prefill_tokens_per_s=9000, step_s=0.001, models={"large": own, "m": ModelRates()})
    speed = speed_of(make_pool(rates=rates), LARGE)
    assert (speed.prefill_s, speed.step_s, speed.step_s_per_sequence) == (0.02, 0.5, 0.1)


def test_of_a_model_that_was_never_here_the_last_one_tells_by_their_sizes() -> None:
    small = ModelRates(
        prefill_tokens_per_s=10_000, step_s=0.02, chunk_tokens=1000, weight_bytes=140_000_000
    )
    rates = Rates(**small.model_dump(), models={"small": small})
    speed = speed_of(make_pool(rates=rates), LARGE)
    # a hundred times as large
    assert 0.005 < speed.prefill_s < 0.02
    assert speed.step_s > 1.0
    assert speed.chunk_tokens == 10
    # nothing else known of the other
    rates = rates.model_copy(update={"weight_bytes": None})
    assert speed_of(make_pool(rates=rates), LARGE).step_s == 0.02


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
