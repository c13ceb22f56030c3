"""What a fresh record says of its job."""

import random

import pytest

from noidle import acceptance
from noidle.jobs import parse_job


def job(**fields: object) -> acceptance.AnyJob:
    return parse_job({"kind": "generate", "id": "a", "model": "echo", "prompt": "x" * 30, **fields})


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"max_tokens": 22}, "standard:generate|echo|*|*|6"),
        ({"max_tokens": 21, "class": "batch"}, "batch:generate|echo|*|*|5"),
        ({"max_tokens": 21, "engine": "gpu"}, "standard:generate|echo|gpu|*|5"),
        ({"max_tokens": 1_000_000}, "standard:generate|echo|*|*|20"),
        ({"max_tokens": 22, "label": "north"}, "standard:generate|echo|*|*|6|2"),
    ],
)
def test_jobs_that_the_same_pools_can_run_are_held_together(
    fields: dict[str, object], name: str
) -> None:
    assert acceptance.held_set(job(**fields)) == name


def test_a_conversation_counts_with_what_a_template_writes_around_it() -> None:
    def size(*contents: str) -> int:
        messages = [{"role": "user", "content": one} for one in contents]
        return acceptance.prompt_bytes(job(prompt=None, messages=messages))

    assert 4 * 300 + 4 * 10 < size(*["あ" * 100] * 4) < 4 * 300 + 4 * 40
    assert size("x" * 400) < size("x" * 200, "x" * 200)


def test_a_training_is_held_by_its_storage_once_it_has_one() -> None:
    train = parse_job({"kind": "train", "model": "mini", "path": "books", "id": "t"})
    assert acceptance.held_set(train) == "background:train|mini|*|*|0"
    assert acceptance.held_set(train, "disk-1") == "background:train|mini|*|disk-1|0"


def test_equal_jobs_have_one_digest_and_others_another() -> None:
    def digest(**fields: object) -> str:
        return acceptance.digest(acceptance.written(job(**fields)))

    assert digest() == digest(temperature=0)
    assert digest() != digest(temperature=0.5)
    assert digest() != digest(seed=1)


def test_sizes_count_bytes_not_characters() -> None:
    assert acceptance.prompt_bytes(job(prompt="日本")) == 6


def test_goals_are_tokens_or_steps_or_none() -> None:
    score = parse_job({"kind": "score", "model": "echo", "text": "x"})
    train = parse_job({"kind": "train", "model": "mini", "path": "books", "steps": 7})
    assert [acceptance.goal(one) for one in (job(max_tokens=5), score, train)] == [5, None, 7]


def test_a_seed_that_was_given_is_kept_and_one_that_is_drawn_fits_every_reader() -> None:
    rng = random.Random(1)
    assert acceptance.draw_seed(job(seed=2**63 - 1), rng) == 2**63 - 1
    drawn = [acceptance.draw_seed(job(), rng) for _ in range(1000)]
    assert max(drawn) < 2**53
    assert len(set(drawn)) == 1000


def test_only_what_celery_really_put_around_a_job_is_kept() -> None:
    assert acceptance.surroundings({"link": [], "chain": None, "group": None}) == {}
    fields = acceptance.surroundings({"group": "g", "parent_id": "p"})
    assert (fields["group"], fields["parent"]) == ("g", "p")
    assert "after" not in fields
    assert acceptance.surroundings({"chord": {"task": "x"}})["after"] == "1"
