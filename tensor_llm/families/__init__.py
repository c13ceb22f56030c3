"""Models in directories as Hugging Face's transformers reads and writes them: which families
there are, how their configs and tensors are spelt, and writing the same again. Knows nothing of
the store, of torch, or of how a model computes."""

from tensor_llm.families.directory import Source as Source
from tensor_llm.families.directory import read_directory as read_directory
from tensor_llm.families.exporting import export as export
