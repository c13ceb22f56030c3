import dataclasses

import pytest

from noidle.errors import InvalidJob
from noidle.jobs import ModelShape, Train
from tensor_llm.config import ModelConfig
from tensor_llm.train_plan import TrainPlan


def test_the_rate_warms_up_and_falls_to_a_tenth():
    job = Train(model="m", text="x", steps=100, warmup_steps=10, learning_rate=1.0)
    plan = TrainPlan.of_job(job, seed=1, config=ModelConfig.of_shape(ModelShape()))
    rates = [plan.learning_rate_at(step) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == pytest.approx(1.0)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[100] == pytest.approx(0.1)
    assert dataclasses.replace(plan, warmup_steps=0).learning_rate_at(0) == 1.0


def test_a_job_becomes_a_plan():
    config = ModelConfig.of_shape(ModelShape(context=64, hidden=64))
    plan = TrainPlan.of_job(Train(model="m", text="x", steps=9), seed=3, config=config)
    assert (plan.seed, plan.steps, plan.sequence) == (3, 9, 64)
    assert plan.learning_rate == 0.01
    wide = dataclasses.replace(config, hidden=512)
    assert (
        TrainPlan.of_job(Train(model="m", text="x"), seed=3, config=wide).learning_rate == 1 / 512
    )
    own = Train(model="m", text="x", learning_rate=0.5, sequence=8)
    assert TrainPlan.of_job(own, seed=3, config=config).learning_rate == 0.5


def test_a_sequence_beyond_the_context_is_refused():
    config = ModelConfig.of_shape(ModelShape(context=64))
    job = Train(model="m", text="x", sequence=65)
    with pytest.raises(
        InvalidJob, match="sequence = 65: allowed is at most the model's context, 64"
    ):
        TrainPlan.of_job(job, seed=1, config=config)
