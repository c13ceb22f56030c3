"""What a pool imports of this package."""

import subprocess
import sys

PARENT_SIDE = (
    "child",
    "environment",
    "exit",
    "machine",
    "placement",
    "process",
    "program",
    "protocol",
    "storage",
)


def test_a_pool_gets_an_engine_without_torch_celery_or_redis():
    source = "import sys\n" + "\n".join(f"import engines.{name}" for name in PARENT_SIDE)
    source += "\nprint({'torch', 'celery', 'redis', 'kombu'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("set()", "")


def test_the_echo_engine_needs_nothing_but_the_standard_library():
    source = "import sys, engines.echo.loop; print([m for m in sys.modules if 'site-packages' in "
    source += "(getattr(sys.modules[m], '__file__', None) or '')])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", source], capture_output=True, text=True, cwd="."
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
