"""`make bench-cpu`: the cpu engine beside llama.cpp and transformers, on one machine in one run,
with the same weights and threads. Knows nothing of the cluster."""
