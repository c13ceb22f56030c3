"""Real processes that several files share."""

from collections.abc import Iterator

import pytest

from tests.integration.ops.local import Local


@pytest.fixture(scope="session")
def echo_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """`noidle up` with one cpu pool of echo; for tests that hurt nobody."""
    local = Local(tmp_path_factory.mktemp("echo"))
    try:
        local.up("--engines", "cpu", "--slots", "8", "--no-flower")
        yield local
    finally:
        local.close()
