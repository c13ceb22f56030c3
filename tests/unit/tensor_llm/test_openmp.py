import subprocess
import sys

import pytest

from tensor_llm.openmp import spin_shortly


def test_idle_threads_spin_shortly_unless_a_person_says_otherwise():
    environment = {"GOMP_SPINCOUNT": "7"}
    spin_shortly(environment)
    assert environment == {"GOMP_SPINCOUNT": "7", "KMP_BLOCKTIME": "1"}
    environment = {"OMP_WAIT_POLICY": "ACTIVE"}
    spin_shortly(environment)
    assert environment == {"OMP_WAIT_POLICY": "ACTIVE"}


@pytest.mark.parametrize("module", ["tensor_llm.openmp"])
def test_it_comes_before_torch(module):
    """Once torch is loaded its pools have read the environment."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
