"""A pool that lives but takes no messages."""

import pytest

from tests.unit.workers.world import Clock
from workers.hearing import DEAF_S, Hearing


class Ear:
    def __init__(self):
        self.clock = Clock()
        self.messages = 1
        self.free = True
        self.ends = 0
        self.hearing = Hearing(lambda: self.messages, lambda: self.free, self.end, clock=self.clock)

    def end(self):
        self.ends += 1

    def pass_time(self, seconds, every=1.0):
        for _ in range(int(seconds / every)):
            self.clock.now_s += every
            self.hearing.check()


@pytest.fixture
def ear():
    return Ear()


def test_messages_that_lie_there_while_slots_are_free_end_the_pool_once(ear):
    ear.pass_time(DEAF_S)
    assert ear.ends == 0
    ear.pass_time(10)
    assert ear.ends == 1


def test_a_queue_that_is_empty_now_and_then_is_heard(ear):
    for _ in range(5):
        ear.pass_time(DEAF_S - 2)
        ear.messages = 0
        ear.pass_time(1)
        ear.messages = 1
    assert ear.ends == 0


def test_a_full_pool_may_leave_messages_lying(ear):
    ear.free = False
    ear.pass_time(3 * DEAF_S)
    assert ear.ends == 0


def test_time_in_which_redis_was_away_does_not_count(ear):
    ear.pass_time(5)
    ear.pass_time(DEAF_S, every=DEAF_S)
    assert ear.ends == 0
