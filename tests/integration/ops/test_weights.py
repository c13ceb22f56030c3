"""`noidle weights`, on a real server."""

import pytest

from noidle.cli import main
from noidle.connection import connect
from routing.redis_board import RedisBoard


@pytest.fixture(autouse=True)
def address(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOIDLE_URL", valkey_url)


def run(*words: str) -> int | str | None:
    with pytest.raises(SystemExit) as caught:
        main(["weights", *words])
    return caught.value.code


def test_weights_are_set_and_shown_and_forgotten(
    valkey_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    assert run("chat=2", "crawl=0.25") == 0
    assert run("crawl=1", "--json") == 0
    assert capsys.readouterr().out.splitlines() == [
        "no label has a weight: all have the same share",
        "chat=2",
        "crawl=0.25",
        '{"weights": {"chat": 2.0}}',
    ]
    with connect(valkey_url) as client:
        assert RedisBoard(client).weights() == {"chat": 2.0}


@pytest.mark.parametrize("wrong", ["chat", "chat=", "=2", "chat=0", "chat=-1", "chat=nan", "a b=2"])
def test_what_is_no_weight_is_refused_and_changes_nothing(
    wrong: str, valkey_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("fine=2", wrong) == 2
    said = capsys.readouterr().err
    assert f"weights = {wrong}: allowed is LABEL=WEIGHT, a weight from 0.01 to 100" in said
    with connect(valkey_url) as client:
        assert RedisBoard(client).weights() == {}
