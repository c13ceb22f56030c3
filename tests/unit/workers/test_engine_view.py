"""What a pool remembers of its engine, and what routers are told of at once."""

from engines.protocol import Done, Hello, ModelSeen, RatesMeasured, RunResult, RunStep, Step
from noidle.snapshot import ModelInfo
from workers.engine_view import EngineView

HELLO = Hello(protocol=1, device="d", kinds=("generate",), models=("a",), kv_tokens_total=100)


def seen(name, storage=None):
    return ModelSeen(model=ModelInfo(name=name, storage=storage))


def step(**fields):
    return Step(runs=(RunStep(run="r"),), **fields)


def test_news_is_told_at_once_and_steps_are_not():
    view = EngineView()
    assert view.hear(HELLO)
    assert view.hear(seen("b"))
    assert not view.hear(seen("b"))
    assert view.hear(RatesMeasured(step_s=0.5))
    assert view.hear(step(loaded=("a",), kv_tokens_free=60, batch=2))
    assert not view.hear(step(loaded=("a",), kv_tokens_free=50, batch=3))
    assert (view.models, view.loaded) == (("a", "b"), ("a",))
    assert (view.kv_tokens_free, view.batch, view.rates.step_s) == (50, 3, 0.5)
    assert view.why is None


def test_a_model_on_the_storage_is_news_but_not_the_programs_own():
    view = EngineView()
    assert view.hear(seen("stored", storage="disk"))
    assert not view.hear(seen("stored", storage="disk"))
    assert view.models == ()


def test_a_bound_that_comes_with_a_model_goes_before_the_hello_s():
    view = EngineView()
    view.hear(HELLO)
    assert view.hear(step(kv_tokens_total=64, kv_tokens_free=48))
    assert (view.kv_tokens_total, view.kv_tokens_free) == (64, 48)
    assert not view.hear(step(kv_tokens_total=64, kv_tokens_free=32))
    # the model left
    assert view.hear(step())
    assert view.kv_tokens_total == 100
    view.down("exited", 1)
    assert view.kv_tokens_total is None


def test_an_engine_that_is_down_has_nothing_in_memory_but_its_speed_is_known():
    view = EngineView()
    for event in (HELLO, RatesMeasured(step_s=0.5), step(loaded=("a",), kv_tokens_free=60)):
        view.hear(event)
    view.down("exited with status 1", 3)
    assert (view.hello, view.why, view.failures) == (None, "exited with status 1", 3)
    assert (view.loaded, view.kv_tokens_free) == ((), None)
    assert view.rates.step_s == 0.5
    view.hear(HELLO)
    assert (view.why, view.kv_tokens_free) == (None, 100)


def test_an_engine_keeps_prompts_once_a_run_said_how_much_of_its_own_it_found():
    view = EngineView()
    assert not view.hear(Done(run="r", result=RunResult(text="x")))
    assert not view.keeps_prompts
    assert view.hear(Done(run="r", result=RunResult(text="x", prefix_tokens=0)))
    assert view.keeps_prompts
    assert not view.hear(Done(run="r", result=RunResult(text="x", prefix_tokens=9)))
