"""Where the text of a run comes from: an argument, a file, or standard input; given once.

Knows nothing of what is done with it."""

from pathlib import Path

from noidle.errors import ConfigError
from noidle.flags import piped_in, read_text

STDIN = "-"


def given_text(argument: str | None, prompt: str | None, file: Path | None) -> str | None:
    """The text, or None where nobody gave one and a terminal could still ask for it.

    Raises:
        ConfigError: it is given twice.
        InvalidJob: the file or standard input cannot be read, or is no UTF-8.
    """
    given = [one for one in (argument, prompt, file) if one is not None]
    if len(given) > 1:
        raise ConfigError("the text is given twice: allowed is one of TEXT, --prompt, --text-file")
    if prompt is not None:
        return prompt
    if file is not None:
        return read_text(str(file.expanduser()), "text-file")
    if argument is not None and argument != STDIN:
        return argument
    if argument == STDIN or piped_in():
        return read_text(STDIN, "standard input")
    return None


def needed_text(argument: str | None, prompt: str | None, file: Path | None) -> str:
    """As given_text, where nobody can be asked.

    Raises:
        ConfigError: there is none, too.
    """
    text = given_text(argument, prompt, file)
    if text is None:
        raise ConfigError("no text: give TEXT, --prompt TEXT or --text-file FILE, or pipe it in")
    return text
