"""Real processes that several files share, and figures that tests report."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.small_models import LONG_CONTEXT, write_llama, write_qwen
from tests.integration.ops.local import Local

FIGURE = "figure"


@pytest.fixture(scope="session")
def echo_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """`noidle up` with one cpu pool of echo, and Flower; for tests that hurt nobody."""
    local = Local(tmp_path_factory.mktemp("echo"))
    try:
        local.up("--engines", "cpu", "--slots", "8")
        yield local
    finally:
        local.close()


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two models as transformers writes them: `tiny-llama` and `tiny-qwen`."""
    folder = tmp_path_factory.mktemp("checkpoints")
    write_llama(folder / "tiny-llama")
    write_qwen(folder / "tiny-qwen", LONG_CONTEXT)
    return folder


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes a line for the end of the run: what was measured and is asserted nowhere."""
    return lambda line: request.node.user_properties.append((FIGURE, line))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for one in reports:
            if getattr(one, "when", None) == "teardown":
                for name, line in one.user_properties:
                    if name == FIGURE:
                        terminalreporter.write_line(line)
