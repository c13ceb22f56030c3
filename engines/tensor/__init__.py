"""The engine program that computes: one loop over ops, prompts, batched decoding and training,
for all four engine names. The only place of this package that imports torch."""
