"""The traces to replay. Owns which files are looked for, and where they come from; knows nothing of
what is in them."""

from collections.abc import Mapping
from pathlib import Path

from noidle.errors import ConfigError

KNOWN = {
    "AzureLLMInferenceTrace_code.csv": "code",
    "AzureLLMInferenceTrace_conv.csv": "conversation",
    "mooncake_synthetic_trace.jsonl": "Mooncake",
}
"""Public traces by file, and what they are called here."""
SOURCES = """\
AzureLLMInferenceTrace_code.csv and AzureLLMInferenceTrace_conv.csv:
  https://github.com/Azure/AzurePublicDataset, folder data, CC-BY-4.0
mooncake_synthetic_trace.jsonl:
  https://github.com/kvcache-ai/Mooncake, folder FAST25-release/traces, Apache-2.0"""
_SUFFIXES = (".csv", ".jsonl")


def find_traces(folder: Path | None) -> Mapping[str, Path]:
    """By name, the known ones first: every CSV and every file of JSON lines in the folder.

    Raises:
        ConfigError: there is none.
    """
    what = "put these files into one folder and name it by --traces or NOIDLE_TRACES"
    if folder is None:
        raise ConfigError(f"the traces to replay are not named: {what}\n{SOURCES}")
    if not folder.is_dir():
        raise ConfigError(f"--traces {folder} is no folder: {what}\n{SOURCES}")
    files = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    if not files:
        raise ConfigError(f"--traces {folder} holds no trace: {what}\n{SOURCES}")
    return {KNOWN.get(path.name, path.stem): path for path in files}


def absent(found: Mapping[str, Path]) -> list[str]:
    """Of the known ones, as files."""
    present = {path.name for path in found.values()}
    return [name for name in KNOWN if name not in present]
