"""How long a producer is patient with a Redis that is away, by a clock of the test's own."""

import pytest
from redis.exceptions import AuthenticationError

from noidle.errors import ClusterUnavailable
from noidle.link import Link


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now_s += pause_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def link(clock: Clock) -> Link:
    return Link("redis://127.0.0.1:1/0", patience_s=10, clock=clock, sleep=clock.sleep)


def away(_: object) -> None:
    raise ClusterUnavailable("away")


def test_a_server_that_never_answered_is_not_waited_for(link: Link, clock: Clock):
    with pytest.raises(ClusterUnavailable):
        link.call(away)
    assert clock.pauses == []


def test_one_that_did_answer_is_asked_again_less_and_less_often(link: Link, clock: Clock):
    link.call(lambda _: None)
    with pytest.raises(ClusterUnavailable):
        link.call(away)
    assert clock.pauses[:6] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert set(clock.pauses[6:]) == {1.0}
    assert 9 < clock.now_s <= 10


def test_patience_starts_anew_after_each_answer(link: Link, clock: Clock):
    link.call(lambda _: None)
    for _ in range(5):
        # away for most of the patience, then back
        end_s = clock.now_s + 8

        def flaky(client: object, end_s: float = end_s) -> str:
            if clock.now_s < end_s:
                away(client)
            return "answer"

        assert link.call(flaky) == "answer"
    assert clock.now_s > 30


def test_the_callers_own_end_comes_before_the_patience(link: Link, clock: Clock):
    link.call(lambda _: None)
    with pytest.raises(ClusterUnavailable):
        link.call(away, until_s=2.0)
    assert clock.now_s <= 2.0


def test_a_password_that_became_wrong_is_not_waited_for(link: Link, clock: Clock):
    link.call(lambda _: None)

    def refused(_: object) -> None:
        raise ClusterUnavailable("refused") from AuthenticationError("wrong password")

    with pytest.raises(ClusterUnavailable):
        link.call(refused)
    assert clock.pauses == []
