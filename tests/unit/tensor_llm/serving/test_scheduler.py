"""Who moves and who gives way, step by step and without a model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_llm.serving.blocks import BlockPool
from tensor_llm.serving.request import Request
from tensor_llm.serving.scheduler import AGED, Plan, Scheduler, priority
from tensor_llm.serving.sequence import Sequence

SIZE = 4


class Floor:
    """Plays the core: every step lands at once and every answer goes on to its limit."""

    def __init__(self, blocks: int = 4096, rows: int = 8, **options) -> None:
        self.scheduler = Scheduler(BlockPool(blocks, SIZE), rows=rows, **options)
        self.count = 0

    def add(self, prompt: int, max_tokens: int = 4, text: int | None = None, **fields) -> Sequence:
        self.count += 1
        first = self.count * 10_000 if text is None else text
        tokens = tuple(range(first, first + prompt))
        sequence = Sequence(Request(tokens=tokens, max_tokens=max_tokens, **fields), self.count, 0)
        self.scheduler.add(sequence)
        return sequence

    def step(self, budget: int = 64) -> Plan:
        plan = self.scheduler.plan(budget) or Plan()
        assert sum(piece.count for piece in plan.pieces) <= budget
        for one in plan.decodes:
            one.read += 1
            self.land(one, one.read, chooses=True)
        for piece in plan.pieces:
            one, chooses = piece.sequence, piece.samples
            one.read = piece.end
            one.decoding = chooses
            self.land(one, piece.end, chooses=chooses)
        self.scheduler.pool.check()
        return plan

    def land(self, one: Sequence, upto: int, chooses: bool) -> None:
        assert upto <= len(one.blocks) * SIZE
        if chooses:
            one.tokens.append(-len(one.tokens))
        self.scheduler.landed(one, upto)
        if len(one.tokens) >= one.limit:
            one.ended = one.leaving = True
            self.scheduler.settle(one)

    def read_in(self, plan: Plan) -> dict[Sequence, int]:
        return {piece.sequence: piece.count for piece in plan.pieces}


@pytest.mark.parametrize("prompt", [1, 5, 64, 63])
@pytest.mark.parametrize("before", [0, 1, 7, 30])
def test_a_short_prompt_is_read_in_the_step_after_it_arrives_beside_a_long_one(prompt, before):
    floor = Floor()
    long = floor.add(4000)
    for _ in range(before):
        floor.step()
    short = floor.add(prompt)
    plan = floor.step()
    assert floor.read_in(plan)[short] == prompt
    assert short.generated == 1
    # and its step is not made longer by the other
    assert long not in floor.read_in(plan)
    assert floor.read_in(floor.step()) == {long: 64}


def test_short_prompts_share_a_step_and_the_rest_of_longer_ones_is_filled_up():
    floor = Floor()
    first, *others = [floor.add(count) for count in (100, 150, 20, 30)]
    assert floor.read_in(floor.step()) == {others[1]: 20, others[2]: 30}
    assert floor.read_in(floor.step()) == {first: 64}
    assert floor.read_in(floor.step()) == {first: 36, others[0]: 28}


def test_decoding_goes_on_in_every_step_while_a_long_prompt_is_read():
    floor = Floor()
    answer = floor.add(3, max_tokens=50)
    floor.step()
    floor.add(4000)
    for step in range(40):
        plan = floor.step()
        assert plan.decodes == [answer]
        assert sum(piece.count for piece in plan.pieces) == 64, step


def test_prompts_are_read_by_rank_then_by_what_is_left():
    floor = Floor(rows=3)
    late, long, short, urgent = (
        floor.add(80, rank=3),
        floor.add(200, rank=1),
        floor.add(100, rank=1),
        floor.add(300, rank=0),
    )
    order = []
    while not order or floor.scheduler.waiting or floor.scheduler.running:
        order += [piece.sequence for piece in floor.step(50).pieces]
    firsts = sorted({*order}, key=order.index)
    assert firsts == [urgent, short, long, late]


def test_a_long_prompt_is_not_passed_over_for_ever():
    floor = Floor()
    long = floor.add(1000)
    for _ in range(200):
        floor.add(64, max_tokens=1)
        floor.step()
    # half of every ninth step, beside short ones that fill them all
    assert long.read >= 200 // (AGED + 1) * 32 - 64


def test_a_full_cache_evicts_the_youngest_of_the_lowest_rank():
    floor = Floor(blocks=12)
    old, low, young = floor.add(12, 30), floor.add(12, 30, rank=2), floor.add(12, 30)
    while not floor.scheduler.evictions:
        floor.step()
    assert low.evictions == 1
    while floor.scheduler.evictions == 1:
        floor.step()
    assert (old.evictions, young.evictions) == (0, 1)


def test_a_prompt_takes_blocks_and_rows_of_lower_ranks_only():
    for options in ({"blocks": 8}, {"rows": 2}):
        floor = Floor(**options)
        high, low = floor.add(12, 8, rank=1), floor.add(12, 8, rank=2)
        floor.step()
        same = floor.add(16, 4, rank=2)
        floor.step()
        assert same.row is None
        urgent = floor.add(12, 4, rank=0)
        floor.step()
        assert (high.evictions, low.evictions, urgent.generated) == (0, 1, 1)


def test_a_prompt_waits_where_those_that_run_would_soon_have_no_block():
    floor = Floor(blocks=10)
    floor.add(8, 20), floor.add(8, 20)
    floor.step()
    # six of ten blocks are taken now, and the two that decode will need one each
    late = floor.add(12)
    floor.step()
    assert late.row is None
    fits = floor.add(8)
    floor.step()
    assert fits.row is not None


def test_blocks_of_lower_ranks_are_not_taken_where_they_would_not_suffice():
    floor = Floor(blocks=10)
    high, low = floor.add(24, 8, rank=1), floor.add(8, 8, rank=2)
    floor.step()
    floor.add(32, 4, rank=1)
    floor.step()
    assert (high.evictions, low.evictions) == (0, 0)


def test_one_that_does_not_fit_is_not_starved_by_smaller_ones():
    floor = Floor(blocks=10)
    floor.add(4, max_tokens=12)
    floor.step()
    big = floor.add(36)
    for _ in range(40):
        floor.add(4, max_tokens=12)
        floor.step()
    assert big.ended


def test_an_equal_beginning_that_is_being_read_is_read_once():
    floor = Floor()
    many = [floor.add(40, text=5) for _ in range(6)]
    read = 0
    while any(not one.generated for one in many):
        read += sum(piece.count for piece in floor.step(16).pieces)
    # all blocks but the last, which holds the token that is asked about
    assert read == 40 + 5 * 4
    assert [one.reused_tokens for one in many] == [0] + [36] * 5


def test_who_waits_for_the_reader_of_a_beginning_lends_it_its_rank():
    floor = Floor(rows=8)
    low = floor.add(400, rank=3, text=5)
    floor.step(16)
    others = [floor.add(300, rank=1) for _ in range(3)]
    urgent = floor.add(401, rank=0, text=5)
    for _ in range(25):
        floor.step(16)
    assert low.generated
    assert urgent.generated
    assert not any(one.generated for one in others)


def test_who_reads_for_another_and_is_evicted_in_the_same_plan_reads_nothing():
    floor = Floor(blocks=30)
    low = floor.add(80, rank=3, text=5)
    floor.step(16)
    urgent, middle = floor.add(81, rank=0, text=5), floor.add(64, rank=1)
    plan = floor.step(100)
    assert low.evictions == 1
    assert set(floor.read_in(plan)) <= {middle}
    while not urgent.generated:
        floor.step(64)


def test_what_is_found_no_more_is_read_by_whoever_wants_it():
    floor = Floor(blocks=12)
    floor.add(40, max_tokens=1, text=5)
    floor.step()
    # other texts take the blocks that were remembered
    for _ in range(2):
        floor.add(40, max_tokens=1)
        floor.step()
    again = floor.add(40, max_tokens=1, text=5)
    floor.step()
    assert again.generated == 1


def test_no_more_are_evicted_than_blocks_are_missing_while_steps_are_under_way():
    floor = Floor(blocks=15, asynchronous=True)
    many = [floor.add(9, max_tokens=30) for _ in range(4)]
    while len(many[0].tokens) < 13:
        floor.step()
    floor.scheduler.pool.take(2)
    assert floor.scheduler.pool.free == 1
    for one in many:
        one.flying = 1
    # one block for four that need one; the last of them has three
    plan = floor.scheduler.plan(64)
    assert [one.evictions for one in many] == [0, 0, 0, 1]
    assert plan.decodes == many[:1]


def test_a_prompt_of_which_all_blocks_are_known_reads_its_last_tokens():
    for prompt in (39, 40, 41):
        floor = Floor()
        floor.add(prompt, max_tokens=1)
        floor.step()
        again = floor.add(prompt, max_tokens=2, text=10_000)
        plan = floor.step()
        kept = (prompt - 1) // SIZE * SIZE
        assert again.reused_tokens == kept
        assert floor.read_in(plan) == {again: prompt - kept}
        assert again.generated == 1


def test_nothing_is_shared_between_salts_or_by_those_who_do_not_want_it():
    floor = Floor()
    floor.add(40, max_tokens=1, text=5, reuse=False)
    floor.step()
    alone = floor.add(40, max_tokens=1, text=5)
    floor.step()
    assert alone.reused_tokens == 0
    unwilling = floor.add(40, max_tokens=1, text=5, reuse=False)
    scored = floor.add(40, max_tokens=0, text=5, score=True)
    floor.step(128)
    assert (unwilling.reused_tokens, scored.reused_tokens) == (0, 0)
    other = Scheduler(floor.scheduler.pool, rows=1, salt="another revision")
    sequence = Sequence(alone.request, 0, 0)
    other.add(sequence)
    other.plan(64)
    assert sequence.reused_tokens == 0


def test_two_flights_share_the_decoding_sequences_evenly():
    floor = Floor(flights=2)
    for _ in range(5):
        floor.add(4, max_tokens=30)
    floor.step()
    sizes = []
    first = floor.scheduler.plan(64)
    for one in first.decodes:
        one.pending, one.flying = 1, 1
    second = floor.scheduler.plan(64)
    sizes = [len(first.decodes), len(second.decodes)]
    assert sizes == [3, 2]
    assert not set(first.decodes) & set(second.decodes)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 30), st.integers(0, 3), st.integers(0, 9)),
        min_size=1,
        max_size=12,
    ),
    blocks=st.integers(18, 40),
    rows=st.integers(1, 5),
    budget=st.sampled_from([1, 7, 64]),
)
def test_the_first_in_order_is_never_evicted_and_all_come_to_their_end(
    lengths, blocks, rows, budget
):
    floor = Floor(blocks=blocks, rows=rows)
    added = []
    for step in range(4000):
        for prompt, count, rank, joins in lengths:
            if joins == step:
                added.append(floor.add(prompt, count, rank=rank))
        here = [one for one in added if not one.ended]
        first = min(here, key=priority, default=None)
        evictions = first.evictions if first else 0
        floor.step(budget)
        assert first is None or first.evictions == evictions
        if step > 10 and not here:
            break
    assert all(one.generated == one.request.max_tokens for one in added)
    assert floor.scheduler.pool.free == blocks
    assert not floor.scheduler.prefixes._readers
