"""The serving core: many sequences, one model, a step at a time, over keys and values in blocks.
It owns scheduling, blocks and sampling; it knows nothing of text, jobs or the devices' engines."""
