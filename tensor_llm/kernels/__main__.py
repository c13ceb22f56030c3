"""Builds the kernels ahead of their first use: `python -m tensor_llm.kernels`. What cannot be built
is said, and is no failure: torch does the same, slower."""

import sys
import time

from tensor_llm.kernels.builder import BuildFault, library_path


def main() -> None:
    began_s = time.perf_counter()
    try:
        path = library_path()
    except BuildFault as fault:
        sys.stderr.write(f"no C++ kernels, so decoding is several times slower: {fault}\n")
        return
    sys.stdout.write(f"{path} ({time.perf_counter() - began_s:.0f} s)\n")


if __name__ == "__main__":
    main()
