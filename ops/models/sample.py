"""The text on which a packed model is compared with the plain one. Owns where it comes from and
how much of it is read."""

from pathlib import Path

from noidle.errors import ConfigError
from noidle.flags import read_text
from ops.plan import ROOT

# some thousand tokens: enough to tell a tenth of a percent, short enough to wait for
_MOST_CHARACTERS = 12_000
_FEWEST_CHARACTERS = 200


def sample_text(given: Path | None) -> str:
    """The beginning of the person's own text, else of noidle's papers.

    Raises:
        ConfigError: it is too short to tell anything.
        InvalidJob: it cannot be read, or is no UTF-8.
    """
    if given is None:
        papers = [paper.read_text(encoding="utf-8") for paper in sorted(ROOT.glob("*.md"))]
        return "\n\n".join(papers)[:_MOST_CHARACTERS]
    text = read_text(str(given.expanduser()), "text")
    if len(text) < _FEWEST_CHARACTERS:
        raise ConfigError(
            f"--text = {str(given)!r}: {len(text)} characters; allowed is {_FEWEST_CHARACTERS} or "
            "more, less tells nothing",
            variable="--text",
        )
    return text[:_MOST_CHARACTERS]
