"""Rows are fitted to a cluster as its description says, and it is said how."""

import pytest

from routing.simulation.described import Fit
from routing.simulation.fitting import fit, loaded, released
from routing.simulation.request import class_of, label_of
from routing.simulation.trace import Row
from tests.unit.routing.simulation.builders import make_described

ROWS = [Row(arrive_s=float(n), prompt=8000, output=100, blocks=tuple(range(16))) for n in range(10)]


def test_prompts_shrink_by_one_factor_and_their_blocks_with_them() -> None:
    fitted = fit(ROWS, make_described(context=4100, fit=Fit.SCALE))
    assert {(one.prompt, one.output, one.block_tokens) for one in fitted.requests} == {
        (4000, 100, 256)
    }
    assert len(fitted.requests[0].blocks) == 16
    assert "multiplied by 0.5, 0 of 10 cut" in fitted.words[0]


def test_prompts_are_cut_where_the_description_says_so() -> None:
    fitted = fit(ROWS, make_described(context=4100, fit=Fit.CLIP))
    assert {(one.prompt, one.block_tokens) for one in fitted.requests} == {(4000, 512)}
    assert len(fitted.requests[0].blocks) == 8
    assert "10 of 10 cut" in fitted.words[0]


def test_prompts_that_begin_alike_are_of_one_class_and_label() -> None:
    rows = [Row(arrive_s=0.0, prompt=900, output=9, blocks=(n % 40, n)) for n in range(200)]
    fitted = fit(rows, make_described()).requests
    of_first = {(one.blocks[0], one.job_class, one.label) for one in fitted}
    assert len(of_first) == 40
    assert len({one.job_class for one in fitted}) == 4


def test_short_rows_stay_as_they_are_and_empty_ones_get_a_token() -> None:
    (one,) = fit([Row(arrive_s=0.0, prompt=0, output=0)], make_described()).requests
    assert (one.prompt, one.output) == (1, 1)


def test_long_answers_are_cut_to_half_of_the_context() -> None:
    fitted = fit([Row(arrive_s=0.0, prompt=10, output=9000)], make_described(context=4096))
    assert fitted.requests[0].output == 2048
    assert "1 cut to 2048" in fitted.words[1]


def test_a_load_sets_the_span_of_arrivals() -> None:
    requests = fit(ROWS, make_described()).requests
    moved = loaded(requests, 0.5, capacity_s=90.0).requests
    assert moved[-1].arrive_s == pytest.approx(180.0)
    assert moved[1].arrive_s == pytest.approx(20.0)
    assert {one.arrive_s for one in released(requests).requests} == {0.0}


def test_classes_and_labels_are_shared_out_as_told_and_apart_from_each_other() -> None:
    count = 20_000
    classes = [class_of(n).value for n in range(count)]
    labels = [label_of(n) for n in range(count)]
    shares = {name: classes.count(name) / count for name in set(classes)}
    assert shares == pytest.approx(
        {"interactive": 0.5, "standard": 0.3, "batch": 0.15, "background": 0.05}, abs=0.005
    )
    both = sum(pair == ("interactive", "north") for pair in zip(classes, labels, strict=True))
    assert both / count == pytest.approx(0.2, abs=0.02)
