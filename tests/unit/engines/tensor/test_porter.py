"""Work beside the loop."""

import threading

import pytest

from engines.tensor.porter import Porter


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def test_work_is_carried_in_order_and_returns_its_result(clock):
    porter = Porter("test", clock)
    futures = [porter.submit(lambda _, n=n: n * n) for n in range(5)]
    assert [future.result(5) for future in futures] == [0, 1, 4, 9, 16]


def test_a_fault_goes_to_whoever_waits_and_the_next_work_is_done(clock):
    porter = Porter("test", clock)
    broken = porter.submit(lambda _: 1 / 0)
    assert porter.submit(lambda _: "next").result(5) == "next"
    with pytest.raises(ZeroDivisionError):
        broken.result(5)


def test_work_moves_while_it_shows_signs_of_life_and_no_longer(clock):
    porter = Porter("test", clock, patience_s=10)
    started, go_on, marked, end = (threading.Event() for _ in range(4))

    def work(progress):
        started.set()
        go_on.wait(5)
        progress.mark()
        marked.set()
        end.wait(5)

    assert not porter.moving
    future = porter.submit(work)
    assert started.wait(5)
    assert porter.moving
    clock.now_s = 10
    assert porter.busy
    assert not porter.moving
    go_on.set()
    assert marked.wait(5)
    assert porter.moving
    end.set()
    future.result(5)
    assert not porter.busy


def test_work_that_is_known_to_be_silent_is_given_longer(clock):
    """A first start on a busy machine builds its kernels for minutes; it was killed for
    silence, and began again."""
    porter = Porter("test", clock, patience_s=10)
    started, go_on, after, end = (threading.Event() for _ in range(4))

    def work(progress):
        with progress.patient(100):
            started.set()
            go_on.wait(5)
        after.set()
        end.wait(5)

    future = porter.submit(work)
    assert started.wait(5)
    clock.now_s = 99
    assert porter.moving
    go_on.set()
    assert after.wait(5)
    assert porter.moving
    clock.now_s = 99 + 10
    assert not porter.moving
    end.set()
    future.result(5)
