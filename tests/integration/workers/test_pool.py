"""A pool as a real process: from a lease to a result."""

from noidle.results import JobState


def test_a_leased_job_ends_with_a_result(start, lender):
    start("pool", "cpu", NOIDLE_SLOTS="2")
    lender.wait_for("cpu@here")
    job = lender.run("cpu@here", max_tokens=5)
    result = lender.result(job)
    assert result.state is JobState.DONE
    assert len(result.tokens) == 5
    assert (result.pool, result.host, result.engine) == ("cpu@here", "here", "cpu")
