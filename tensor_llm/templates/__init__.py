"""Running a chat template that may be anybody's: bounded in time and memory, with no way to Python,
and with text that remembers who wrote it. Knows nothing of tokens, models or jobs."""
