"""The names of the router's profiles. What they weigh is the router's."""

from enum import StrEnum


class ProfileName(StrEnum):
    """What goes first where both cannot be had; hard memory pressure stops training in either."""

    RESPONSE_FIRST = "response_first"  # answers stay quick, training takes what is left
    TRAINING_FIRST = "training_first"  # training gets its slot first and keeps it
