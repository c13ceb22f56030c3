"""How many threads a measurement chooses, and what is kept of it."""

import json
import os

import pytest
import torch

from tensor_llm import threads
from tensor_llm.threads import apart, fewest, use_threads

pytestmark = pytest.mark.alone


@pytest.fixture(autouse=True)
def _as_before():
    number, cpus = torch.get_num_threads(), os.sched_getaffinity(0)
    yield
    torch.set_num_threads(number)
    threads._keep_to(sorted(cpus))


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        ({1: 1.0}, 1),
        ({1: 1.0, 2: 0.5}, 2),
        ({1: 1.0, 2: 0.97}, 1),
        ({1: 1.0, 2: 0.5, 4: 0.49, 8: 0.6}, 2),
        ({1: 1.0, 2: 0.99, 4: 0.5}, 4),
        ({1: 1.0, 2: 0.6, 3: 0.58, 4: 0.55}, 4),
    ],
)
def test_threads_that_gain_little_are_not_taken(seconds, wanted):
    assert fewest(seconds) == wanted


def test_of_each_core_one_cpu_is_left(tmp_path):
    for cpu, siblings in {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"}.items():
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    assert apart([0, 1, 4, 5], tmp_path) == [0, 1]
    assert apart([1, 4, 5], tmp_path) == [1, 4]
    assert apart([0, 7], tmp_path) == [0, 7], "of what the system does not tell, each counts"


def test_candidates_grow_by_halves_up_to_the_most():
    assert threads._numbers(1) == [1]
    assert threads._numbers(2) == [1, 2]
    assert threads._numbers(10) == [1, 2, 3, 4, 6, 8, 10]


def test_a_choice_is_kept_and_not_measured_again(tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "_busy", lambda: False)
    monkeypatch.setattr(threads, "best_kernels", lambda: FakeKernels())
    measured = []
    monkeypatch.setattr(threads, "_measured", lambda most, _: measured.append(most) or (1, []))
    assert use_threads(2, tmp_path) == 1
    assert use_threads(2, tmp_path) == 1
    assert measured == [2]
    assert torch.get_num_threads() == 1


def test_on_a_busy_machine_the_most_is_taken_and_nothing_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "_busy", lambda: True)
    assert use_threads(2, tmp_path) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "kept", ["", "[]", '{"threads": 5, "cpus": []}', '{"threads": 1, "cpus": [99999]}']
)
def test_what_is_kept_and_does_not_fit_is_measured_anew(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "_busy", lambda: False)
    monkeypatch.setattr(threads, "best_kernels", lambda: FakeKernels())
    monkeypatch.setattr(threads, "_measured", lambda most, _: (2, []))
    path = threads._file(2, tmp_path)
    path.write_text(kept)
    assert use_threads(2, tmp_path) == 2
    assert json.loads(path.read_text()) == {"threads": 2, "cpus": []}


def test_a_real_measurement_chooses_something_that_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "_busy", lambda: False)
    assert use_threads(2, tmp_path) in (1, 2)


class FakeKernels:
    name = "fake"
