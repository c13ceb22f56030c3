"""Real processes that several files share, and figures that tests report."""

from collections.abc import Callable, Iterator

import pytest

from tests.integration.ops.local import Local

FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def echo_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """`noidle up` with one cpu pool of echo, and Flower; for tests that hurt nobody."""
    local = Local(tmp_path_factory.mktemp("echo"))
    try:
        local.up("--engines", "cpu", "--slots", "8")
        yield local
    finally:
        local.close()


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes a line for the end of the run: what was measured and is asserted nowhere."""
    return request.config.stash.setdefault(FIGURES, []).append


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in config.stash.get(FIGURES, []):
        terminalreporter.write_line(line)
