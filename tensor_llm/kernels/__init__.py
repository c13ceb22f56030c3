"""Products and decode steps on the CPU: C++ for vector units where a compiler can build it,
plain torch with the same results elsewhere. Knows nothing of jobs, sampling or files."""
