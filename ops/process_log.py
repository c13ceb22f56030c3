"""The log of a process: one line a record on standard error, which the supervisor's file or the
service manager keeps."""

import logging
import time

# what records carry in `extra`, in the order it is shown
_EXTRA = ("event", "job", "pool")


class _Line(logging.Formatter):
    """`time level logger: message [event=… job=… pool=…]`, times in UTC."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging's name
        fields = [f"{name}={getattr(record, name)}" for name in _EXTRA if hasattr(record, name)]
        line = super().formatMessage(record)
        return f"{line} [{' '.join(fields)}]" if fields else line


def log_to_stderr(level: str) -> None:
    """`level`: debug, info, warning or error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Line())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
