"""The language model: a decoder over torch with its serving core, sampling, tokenizer, training and
checkpoints. Knows nothing of jobs in flight, Redis or Celery. Import its modules by name:
`config`, `families` and `store` need no torch, most others do."""
