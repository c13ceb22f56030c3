"""How pools are named, and what they start without."""

import subprocess
import sys

import pytest

from noidle.jobs import EngineName
from workers.pool import pool_name


@pytest.mark.parametrize(("index", "name"), [(0, "gpu@left"), (2, "gpu.2@left")])
def test_a_pool_is_named_for_engine_number_and_host(index, name):
    assert pool_name(EngineName.GPU, "left", index) == name


def test_workers_start_without_torch():
    check = "import sys, workers.pool, workers.router; print('torch' in sys.modules)"
    seen = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "False"
