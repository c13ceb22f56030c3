"""Celery links of ended jobs are given out until they are sent."""

from noidle.results import JobError
from routing.envelope import Envelope
from tests.contract.board_world import (
    Cluster,
    generate,
)

LINKED = Envelope(link=[{"task": "next"}], group="g", root_id="r", delivery="d")


def test_links_of_an_ended_job_are_given_out_until_they_are_sent(cluster: Cluster) -> None:
    board = cluster.board
    board.accept(generate("a"), LINKED)
    cluster.accept(generate("b"))
    assert board.take_after() is None
    cluster.start("a")
    cluster.start("b")
    cluster.finish("a", text="answer")
    cluster.finish("b")
    taken = board.take_after()
    assert taken is not None
    assert (taken[0].id, taken[0].text, taken[1]) == ("a", "answer", LINKED)
    assert board.take_after() is None
    cluster.world.pass_time(11)
    assert board.take_after() == taken
    board.sent("a")
    cluster.world.pass_time(11)
    assert board.take_after() is None


def test_links_of_a_refused_job_are_sent_too(cluster: Cluster) -> None:
    error = JobError(code="invalid", message="no")
    cluster.board.refuse("a", None, error, Envelope(link_error=[{"task": "oh"}]))
    taken = cluster.board.take_after()
    assert taken is not None
    assert taken[0].error == error


def test_links_outlive_a_result_that_is_not_kept_long(cluster: Cluster) -> None:
    cluster.board.accept(generate("a", keep_s=1), LINKED)
    cluster.board.cancel("a")
    cluster.world.pass_time(100)
    assert cluster.board.take_after() is not None
    cluster.board.sent("a")
    cluster.world.pass_time(2)
    assert cluster.board.status("a") is None


def test_a_job_sent_again_before_its_links_were_is_not_taken_for_ended(cluster: Cluster) -> None:
    cluster.board.accept(generate("a"), LINKED)
    cluster.board.cancel("a")
    assert cluster.board.accept(generate("a"), Envelope(link=[{"task": "new"}]))
    assert cluster.board.take_after() is None


def test_links_are_sent_once_though_the_id_ended_twice(cluster: Cluster) -> None:
    for _ in range(2):
        cluster.board.accept(generate("a"), Envelope(link=[{"task": "next"}]))
        cluster.board.cancel("a")
    assert cluster.board.take_after() is not None
    cluster.board.sent("a")
    assert cluster.board.take_after() is None
