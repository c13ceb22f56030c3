"""What `import noidle` costs, and that the package's neighbours can live beside it."""

import importlib.metadata
import subprocess
import sys

import pytest

import noidle

HEAVY = ["torch", "numpy", "redis", "celery", "pydantic", "typer", "rich", "psutil"]


def loaded_after(statement: str) -> set[str]:
    """Modules that a fresh interpreter holds after the statement."""
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import noidle", HEAVY),
        ("import noidle.errors", HEAVY),
        ("from noidle import Generate, JobResult", ["redis", "celery", "torch", "numpy"]),
        ("import noidle.jobs, noidle.results, noidle.snapshot", ["redis", "celery", "torch"]),
        ("from noidle import Client", ["celery", "torch", "numpy", "typer"]),
        ("import noidle.cli", ["redis", "celery", "torch", "typer", "pydantic"]),
    ],
)
def test_a_producer_loads_only_what_it_uses(statement, unwanted):
    assert not loaded_after(statement) & set(unwanted)


def test_every_exported_name_is_there_and_listed():
    for name in noidle.__all__:
        assert getattr(noidle, name).__name__ == name
        assert name in dir(noidle)


def test_a_name_that_is_not_exported_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'noidle' has no attribute 'Jobs'"):
        _ = noidle.Jobs


@pytest.mark.parametrize("name", ["workers", "engines", "routing", "tensor_llm", "ops"])
def test_no_installed_distribution_owns_a_name_of_ours(name):
    """The cluster runs from a checkout; a distribution with such a name would shadow it."""
    assert importlib.metadata.packages_distributions().get(name, []) == []
