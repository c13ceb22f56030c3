"""How records become arguments of scripts and answers become records."""

import json

from noidle.results import JobResult, JobState, JobTimes
from routing.board import Claim, PoolLoad, Refusal, StepReport
from routing.envelope import Envelope
from routing.wire import (
    finish_arguments,
    position_behind,
    report_arguments,
    to_claim,
    to_envelope,
    to_held,
    to_loads,
)

FACTS = {
    "id": "a",
    "kind": "generate",
    "model": "echo",
    "class": "batch",
    "engine": "gpu",
    "label": None,
    "prompt_bytes": 9,
    "max_tokens": 5,
}


def test_a_held_job_wants_the_tokens_that_are_still_missing() -> None:
    job = to_held([FACTS, 1.5, 12.75, 13.5, 2, 1, "disk-1"])
    assert (job.max_tokens, job.order, job.storage, job.alone) == (3, 1.5, "disk-1", True)
    assert (job.accepted_ms, job.held_since_ms) == (12, 13)
    assert to_held([FACTS, 1.5, 12.75, 13.5, 9, 0, None]).max_tokens == 0


def test_loads_are_numbers_by_pool() -> None:
    load = PoolLoad(in_flight=2, kv_tokens=30, memory_bytes=1 << 40, alone=False)
    assert to_loads('{"cpu@a":[2,30,1099511627776,false]}') == {"cpu@a": load}
    assert to_loads("{}") == {}


def test_refusals_say_where_the_lease_is() -> None:
    assert to_claim(["stale"]) == Refusal(reason="stale")
    assert to_claim(["elsewhere", "gpu@b"]) == Refusal(reason="elsewhere", pool="gpu@b")


def test_a_claim_carries_seeds_that_floats_cannot_hold() -> None:
    job = '{"kind":"generate","id":"a","model":"echo","prompt":"x"}'
    head = ["claimed", job, str(2**63 - 1), "2", "text", "[1,2]", "r1"]
    checkpoint = '{"name":"s","storage":"d","step":3}'
    claim = to_claim([*head, checkpoint, "1.5", "2.25", "3.5", "", "4.5"])
    assert isinstance(claim, Claim)
    assert (claim.seed, claim.attempt, claim.tokens) == (2**63 - 1, 2, (1, 2))
    assert claim.checkpoint is not None
    assert (claim.checkpoint.step, claim.first_token_ms, claim.held_ms) == (3, None, 2.25)


def test_a_report_says_from_where_it_goes_on_in_bytes() -> None:
    report = StepReport(job="a", token="t", text="日本", tokens=(1, 2, 3))
    assert report_arguments(report, (4, 2))[:7] == ["a", "t", 4, 2, "日本", 3, "[1,2,3]"]
    assert report_arguments(report, None)[2:4] == ["", ""]
    assert position_behind(report, (4, 2)) == (10, 5)


def test_a_finish_brings_what_the_stream_may_lack() -> None:
    result = JobResult(id="a", state=JobState.DONE, text="日本語", tokens=(1, 2, 3))
    arguments = finish_arguments("t", result, (6, 2))
    assert arguments[7:14] == [9, 3, 6, 2, "語", 1, "[3]"]
    assert finish_arguments("t", result, None)[9:14] == ["", "", "", 0, "[]"]
    nothing = JobResult(id="a", state=JobState.DONE)
    assert finish_arguments("t", nothing, (0, 0))[7:9] == ["", ""]


def test_a_result_and_its_times_are_open_at_their_end() -> None:
    times = JobTimes(held_ms=9.0, prefill_ms=1.5)
    arguments = finish_arguments("t", JobResult(id="a", state=JobState.DONE, times=times), None)
    assert json.loads(f'{arguments[3]},"times":{arguments[4]}}}}}') == {
        "id": "a",
        "state": "done",
        "times": {"prefill_ms": 1.5},
    }


def test_an_envelope_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    assert to_envelope({"group": "g", "new": 1}) == Envelope(group="g")
