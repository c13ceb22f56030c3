"""Models as a person manages them: what lies in the store, what a cluster on it must know and
whom it would miss. Needs no torch; how files are read and written is tensor_llm's matter."""
