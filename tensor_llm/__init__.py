"""The language model: a decoder over torch with its cache, sampling, tokenizer, training and
checkpoints. Knows nothing of jobs in flight, Redis or Celery. Import its modules by name:
`config` and `store` need no torch, the others do."""
