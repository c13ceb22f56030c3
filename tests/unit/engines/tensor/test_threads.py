"""How many threads an engine computes with."""

import pytest
import torch

from engines.tensor.threads import Threads


@pytest.fixture(autouse=True)
def as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def half(asked):
    def use(most):
        asked.append(most)
        torch.set_num_threads(most // 2)
        return most // 2

    return use


def test_threads_are_measured_once_and_not_before_there_is_something_to_decode():
    asked = []
    threads = Threads(4, measured=True, use=half(asked))
    assert (asked, torch.get_num_threads()) == ([], 4)
    threads.settle()
    threads.settle()
    assert (asked, torch.get_num_threads()) == ([4], 2)


def test_training_gets_all_of_them_and_gives_them_back():
    threads = Threads(4, measured=True, use=half([]))
    threads.settle()
    with threads.all_of_them():
        assert torch.get_num_threads() == 4
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("most", "measured"), [(1, True), (4, False)])
def test_nothing_is_measured_where_there_is_no_choice_or_the_cpu_only_stands_in(most, measured):
    asked = []
    threads = Threads(most, measured=measured, use=half(asked))
    threads.settle()
    assert (asked, torch.get_num_threads()) == ([], most)
    with threads.all_of_them():
        assert torch.get_num_threads() == most
