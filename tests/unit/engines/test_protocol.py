"""The lines between pool and engine."""

import json

import pytest

from engines import protocol
from engines.protocol import (
    CheckpointRef,
    Done,
    Drop,
    Hello,
    ProtocolError,
    RatesMeasured,
    RunResult,
    RunStep,
    Start,
    Step,
    UnknownMessage,
    Yield,
    parse_event,
    parse_op,
    to_line,
)
from noidle.jobs import Generate
from noidle.snapshot import ModelInfo, Rates

JOB = Generate(id="j", model="m", prompt="日本語\n\u2028", max_tokens=3)
OPS = [
    Start.of("r", JOB, 7, attempt=2, text="a", tokens=(1, 2), revision="step-000001-x"),
    Start.of("r", JOB, 7, checkpoint=CheckpointRef(name="n", storage="s", step=3)),
    Drop(run="r"),
    protocol.Preload(model="m"),
    protocol.Stop(),
]
EVENTS = [
    Hello(protocol=1, device="d", kinds=("generate",), models=("m",), versions={"torch": "2"}),
    Step(runs=(RunStep(run="r", text="é", tokens=(5,)), RunStep(run="s")), loaded=("m",)),
    Done(run="r", result=RunResult(text="t", tokens=(1,), finish_reason="stop")),
    Yield(
        run="r",
        checkpoint=CheckpointRef(name="n", storage="s", step=3),
        model=ModelInfo(name="m"),
        service_s=1.5,
    ),
    RatesMeasured(step_s=0.5),
]


@pytest.mark.parametrize("op", OPS)
def test_an_op_survives_its_line(op):
    line = to_line(op)
    assert line.count(b"\n") == 1
    assert parse_op(line) == op


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_survives_its_line(event):
    assert parse_event(to_line(event)) == event


def test_a_job_travels_as_any_producer_would_write_it():
    start = json.loads(to_line(OPS[0]))
    assert start["job"]["class"] == "standard"
    assert start["job"]["prompt"] == JOB.prompt


def test_absent_fields_are_left_out_of_a_line():
    assert b"null" not in to_line(EVENTS[1])


def test_rates_lose_nothing_on_their_way_to_the_snapshot():
    assert RatesMeasured(step_s=0.5, load_bytes_per_s=2.0).plain() == Rates(
        step_s=0.5, load_bytes_per_s=2.0
    )


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"not json\n", "not a JSON object"),
        (b"[]\n", "event"),
        (b'{"event":"done"}\n', "done.run"),
        (b'{"event":"step","runs":[{"run":3}]}\n', "step.runs.0.run = 3"),
        (b'{"run":"r"}\n', "event"),
    ],
)
def test_a_line_that_is_no_message_is_refused_with_its_fault(line, shown):
    with pytest.raises(ProtocolError, match=shown):
        parse_event(line)


def test_a_message_of_a_newer_protocol_can_be_told_apart():
    with pytest.raises(UnknownMessage, match="telemetry"):
        parse_event(b'{"event":"telemetry","x":1}\n')
    assert parse_event(b'{"event":"dropped","run":"r","new":1}\n').run == "r"


def test_a_message_longer_than_a_line_may_be_is_not_written(monkeypatch):
    monkeypatch.setattr(protocol, "MAX_LINE_BYTES", 100)
    with pytest.raises(ProtocolError, match="at most 100"):
        to_line(Step(runs=(RunStep(run="r", text="x" * 200),)))


def test_a_number_that_is_none_is_written_as_absent():
    step = parse_event(to_line(Step(runs=(RunStep(run="r", step=1, loss=float("nan")),))))
    assert step.runs[0].loss is None
