"""What packing does to perplexity."""

import pytest

from noidle.errors import CheckpointError
from tensor_llm.adding import add_model
from tensor_llm.fidelity import perplexity_change
from tensor_llm.quantization import WeightFormat
from tensor_llm.store import ModelStore
from tests.unit.tensor_llm.builders import TEXT
from tests.unit.tensor_llm.checkpoints import make_theirs, write_theirs


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return write_theirs(make_theirs("llama 3"), tmp_path_factory.mktemp("plain"))


def packed(plain, tmp_path, format_):
    store = ModelStore(tmp_path)
    add_model(store, plain, "packed", format=format_)
    return store.directory("packed")


def test_int8_changes_less_than_int4(plain, tmp_path):
    eight = perplexity_change(plain, packed(plain, tmp_path / "8", WeightFormat.INT8), TEXT)
    four = perplexity_change(plain, packed(plain, tmp_path / "4", WeightFormat.INT4), TEXT)
    assert eight.before == four.before
    assert 0 < abs(eight.relative) < abs(four.relative) < 1
    # the context is shorter than the text
    assert eight.tokens == 159


def test_the_same_model_is_not_changed(plain):
    found = perplexity_change(plain, plain, TEXT)
    assert (found.before, found.relative) == (found.after, 0)


def test_a_text_without_a_second_token_is_refused(plain):
    with pytest.raises(CheckpointError, match="0 tokens"):
        perplexity_change(plain, plain, "")
