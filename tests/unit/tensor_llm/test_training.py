import dataclasses

import pytest
import torch

from noidle.errors import CheckpointError, InvalidJob
from tensor_llm.data import Corpus
from tensor_llm.model import new_decoder
from tensor_llm.train_plan import TrainPlan
from tensor_llm.training import Trainer
from tests.unit.tensor_llm.builders import TEXT, make_config, make_tokenizer

PLAN = TrainPlan(
    seed=5,
    steps=12,
    batch=4,
    accumulate=1,
    sequence=16,
    learning_rate=0.01,
    warmup_steps=3,
    weight_decay=0.1,
    clip_norm=1.0,
)


def make_corpus(text: str = TEXT) -> Corpus:
    return Corpus.of([text[600:]], [text[:600]], make_tokenizer())


def make_trainer(state=None, text: str = TEXT, **changes: object) -> Trainer:
    model = new_decoder(make_config(vocabulary=300), seed=1)
    return Trainer(model, make_corpus(text), dataclasses.replace(PLAN, **changes), state=state)


def copy_of(trainer: Trainer) -> Trainer:
    """Another trainer that has only the weights and the state of the first."""
    copy = make_trainer()
    copy.model.load_state_dict({k: v.clone() for k, v in trainer.model.state_dict().items()})
    return Trainer(copy.model, make_corpus(), PLAN, state=trainer.state())


def test_a_fixed_seed_gives_a_fixed_loss_curve():
    first, again = make_trainer(), make_trainer()
    assert [first.step() for _ in range(6)] == [again.step() for _ in range(6)]
    assert make_trainer(seed=6).step() != make_trainer().step()


def test_a_resumed_training_gives_the_same_loss_curve():
    whole = make_trainer()
    curve = [whole.step() for _ in range(12)]
    part = make_trainer()
    begun = [part.step() for _ in range(5)]
    resumed = copy_of(part)
    assert resumed.steps_done == 5
    assert begun + [resumed.step() for _ in range(7)] == curve
    assert resumed.done
    assert resumed.report() == whole.report()


def test_a_resumed_trainer_shares_no_memory_with_the_state():
    first = make_trainer()
    first.step()
    second = copy_of(first)
    second.step()
    third = copy_of(first)
    # the first loss comes before the moments are used
    assert [third.step() for _ in range(2)] == [first.step() for _ in range(2)]


def test_training_beats_a_model_of_token_frequencies():
    trainer = make_trainer(steps=60)
    while not trainer.done:
        trainer.step()
    report = trainer.report()
    assert report.held_out_loss < report.unigram_loss - 0.5
    assert report.held_out_loss < report.held_out_loss_before
    assert (report.steps, report.tokens_seen) == (60, 60 * 4 * 16)


@pytest.mark.parametrize("accumulate", [2, 4])
def test_accumulated_parts_equal_one_batch(accumulate):
    whole, parts = make_trainer(), make_trainer(accumulate=accumulate)
    for _ in range(4):
        assert parts.step() == pytest.approx(whole.step(), rel=1e-4)


def test_a_part_is_bounded_and_the_loss_stays_the_same():
    whole = make_trainer()
    model = new_decoder(make_config(vocabulary=300), seed=1)
    bounded = Trainer(model, make_corpus(), PLAN, part_tokens=3 * PLAN.sequence)
    bounded.step()
    # four sequences of which three may be computed at once: two parts of two
    assert len(list(bounded.step_parts())) == 2
    whole.step()
    whole.step()
    assert bounded.step() == pytest.approx(whole.step(), rel=1e-4)


def test_a_sequence_is_never_cut_however_small_a_part():
    model = new_decoder(make_config(vocabulary=300), seed=1)
    tiny = Trainer(model, make_corpus(), PLAN, part_tokens=1)
    tiny.step()
    assert len(list(tiny.step_parts())) == PLAN.batch


def test_gradients_are_clipped():
    # so short that AdamW's epsilon swallows them
    trainer = make_trainer(clip_norm=1e-12, weight_decay=0.0)
    trainer.step()
    assert trainer.evaluate() == pytest.approx(trainer.report().held_out_loss_before, abs=0.02)
    free = make_trainer(weight_decay=0.0)
    free.step()
    assert free.evaluate() < free.report().held_out_loss_before - 0.05


def test_a_step_left_unfinished_changes_nothing():
    trainer, wanted = make_trainer(accumulate=2), make_trainer(accumulate=2)
    parts = trainer.step_parts()
    # the held-out loss comes first, then the first part of the step
    while trainer.state().held_out_loss_before is None:
        next(parts)
    next(parts)
    parts.close()
    assert trainer.steps_done == 0
    assert trainer.step() == wanted.step()


def test_the_held_out_loss_is_the_mean_over_all_tokens():
    trainer = make_trainer()
    windows = make_corpus().windows(16)
    with torch.no_grad():
        losses = [
            torch.nn.functional.cross_entropy(
                trainer.model(input_T[None])[0], target_T, reduction="none"
            )
            for input_T, target_T in windows
        ]
    assert trainer.evaluate() == pytest.approx(float(torch.cat(losses).mean()), rel=1e-5)


def test_norms_do_not_decay():
    trainer = make_trainer(weight_decay=1.0, learning_rate=1e-3)
    decays = {
        parameter: group["weight_decay"]
        for group in trainer._optimizer.param_groups
        for parameter in group["params"]
    }
    for name, parameter in trainer.model.named_parameters():
        assert decays[parameter] == (0.0 if "norm" in name else 1.0)


def test_a_state_of_other_settings_is_refused():
    trainer = make_trainer()
    trainer.step()
    with pytest.raises(CheckpointError, match="plan: belongs to a job with other settings"):
        make_trainer(state=trainer.state(), learning_rate=0.02)


def test_a_state_of_another_text_is_refused():
    trainer = make_trainer()
    trainer.step()
    with pytest.raises(CheckpointError, match="the text has changed since"):
        make_trainer(state=trainer.state(), text=TEXT.replace("slot", "pool"))


def test_a_loss_that_is_no_number_names_the_learning_rate():
    trainer = make_trainer()
    with torch.no_grad():
        trainer.model.embedding.weight.fill_(float("nan"))
    with pytest.raises(InvalidJob, match=r"learning_rate = 0\.01: allowed is lower") as caught:
        trainer.step()
    assert caught.value.field == "learning_rate"
    assert trainer.steps_done == 0


def test_too_short_a_text_is_refused():
    with pytest.raises(InvalidJob, match="tokens to train on"):
        make_trainer(sequence=5000)


def test_a_narrower_type_computes_but_does_not_keep():
    model = new_decoder(make_config(vocabulary=300), seed=1)
    trainer = Trainer(model, make_corpus(), PLAN, autocast=torch.bfloat16)
    assert trainer.step() == pytest.approx(make_trainer().step(), rel=0.02)
    assert model.embedding.weight.dtype == torch.float32
