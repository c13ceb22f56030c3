"""How long idle threads of OpenMP's pools spin before they sleep. No torch: the pools read this
when torch is first imported.

By default GNU's spin for about 15 ms after each piece of work, on cores that others may need.
Two threads that decode in int4 on two cores with six other busy processes made 8.1 tokens/s so,
9.6 with a short spin and 10.4 without any; a short one still bridges the gaps between torch's
operations."""

from collections.abc import MutableMapping

_SETTINGS = {
    # of GNU's library, in rounds of about 50 ns
    "GOMP_SPINCOUNT": "1000",
    # of LLVM's and Intel's, in milliseconds
    "KMP_BLOCKTIME": "1",
}


def spin_shortly(environment: MutableMapping[str, str]) -> None:
    """What a person has set stays."""
    if "OMP_WAIT_POLICY" in environment:
        return
    for name, value in _SETTINGS.items():
        environment.setdefault(name, value)
