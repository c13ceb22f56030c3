import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noidle.errors import InvalidJob
from tensor_llm.data import Corpus, split_documents
from tests.unit.tensor_llm.builders import TEXT, make_tokenizer


def make_corpus(train: str = TEXT[500:], held: str = TEXT[:500]) -> Corpus:
    return Corpus.of([train], [held], make_tokenizer())


@given(
    documents=st.lists(st.text(st.sampled_from("ab \n"), min_size=1, max_size=400), min_size=1),
    share=st.floats(0.01, 0.9),
)
def test_splitting_loses_no_text(documents, share):
    train, held = split_documents(documents, share)
    assert sorted("".join(train + held)) == sorted("".join(documents))
    assert all(train + held)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.29, 0.5])
@pytest.mark.parametrize("length", [300, 5_000, 100_000])
def test_the_held_out_part_has_about_the_share_asked_for(share, length):
    text = (TEXT * 20)[:length]
    train, held = split_documents([text], share)
    # lines are not cut, which shows in a short text
    assert sum(map(len, held)) / length == pytest.approx(share, abs=0.1 if length == 300 else 0.05)
    assert train


def test_held_out_blocks_come_from_all_over_the_text():
    text = "".join(f"line {number}\n" for number in range(10_000))
    _, held = split_documents([text], 0.1)
    assert len(held) > 4
    assert text.index(held[0]) < len(text) * 0.3
    assert text.index(held[-1]) > len(text) * 0.7
    # whole lines
    assert all(block.startswith("line") and block.endswith("\n") for block in held)


def test_a_text_without_lines_is_split_too():
    train, held = split_documents(["x" * 50_000], 0.1)
    assert sum(map(len, held)) == pytest.approx(5_000, abs=2_000)
    assert len(train) > 1


def test_each_piece_ends_with_the_end_token():
    tokenizer = make_tokenizer()
    corpus = Corpus.of(["the router", "holds"], ["a job"], tokenizer)
    end = tokenizer.eos_token
    wanted = [*tokenizer.encode("the router"), end, *tokenizer.encode("holds"), end]
    assert corpus.train_N.tolist() == wanted


def test_batches_depend_on_seed_and_step_alone():
    corpus = make_corpus()
    first, again, later, other = (
        corpus.batch(seed=seed, step=step, batch=4, sequence=16)
        for seed, step in [(1, 2), (1, 2), (1, 3), (2, 2)]
    )
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], later[0])
    assert not torch.equal(first[0], other[0])


def test_targets_are_the_tokens_after_the_inputs():
    input_BT, target_BT = make_corpus().batch(seed=0, step=0, batch=5, sequence=12)
    assert input_BT.shape == target_BT.shape == (5, 12)
    assert torch.equal(input_BT[:, 1:], target_BT[:, :-1])


def test_the_shortest_text_that_passes_can_be_drawn_from():
    corpus = make_corpus()
    short = Corpus(train_N=corpus.train_N[:17], held_N=corpus.held_N[:2], vocabulary=300)
    short.check(16)
    input_BT, _ = short.batch(seed=0, step=0, batch=64, sequence=16)
    assert input_BT.shape == (64, 16)


def test_batches_reach_from_the_first_token_to_the_last():
    corpus = Corpus(
        train_N=torch.arange(20, dtype=torch.int32),
        held_N=torch.zeros(2, dtype=torch.int32),
        vocabulary=20,
    )
    input_BT, target_BT = corpus.batch(seed=0, step=0, batch=64, sequence=16)
    assert (int(input_BT.min()), int(target_BT.max())) == (0, 19)


@pytest.mark.parametrize(("train", "held"), [(16, 9), (17, 1)])
def test_too_short_a_text_is_refused_with_what_it_has(train, held):
    corpus = make_corpus()
    short = Corpus(train_N=corpus.train_N[:train], held_N=corpus.held_N[:held], vocabulary=300)
    with pytest.raises(InvalidJob, match=f"{train} tokens to train on, {held} held out"):
        short.check(16)


def test_windows_predict_every_held_out_token_but_the_first_once():
    corpus = make_corpus()
    windows = corpus.windows(16)
    assert torch.cat([target_T for _, target_T in windows]).tolist() == corpus.held_N[1:].tolist()
    assert torch.cat([input_T for input_T, _ in windows]).tolist() == corpus.held_N[:-1].tolist()


def test_the_unigram_model_knows_frequencies_alone():
    corpus = Corpus(
        train_N=torch.tensor([0, 0, 0, 1], dtype=torch.int32),
        held_N=torch.tensor([2, 0, 1], dtype=torch.int32),
        vocabulary=3,
    )
    # counts with one added: 4, 2, 1
    wanted = -(math.log(4 / 7) + math.log(2 / 7)) / 2
    assert corpus.unigram_loss() == pytest.approx(wanted)


def test_the_digest_tells_any_token_that_changed():
    corpus = make_corpus()
    changed = corpus.held_N.clone()
    changed[3] += 1
    other = Corpus(train_N=corpus.train_N, held_N=changed, vocabulary=300)
    moved = Corpus(
        train_N=torch.cat((corpus.train_N, corpus.held_N[:1])),
        held_N=corpus.held_N[1:],
        vocabulary=300,
    )
    assert len({corpus.digest(), other.digest(), moved.digest()}) == 3
    assert corpus.digest() == make_corpus().digest()
