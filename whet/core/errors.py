"""Errors with stable codes.

Every error that a user can see is a `WhetError`: one line that says what is wrong, optional
detail lines, a hint, and a code that `docs/errors.md` explains.  `CODES` is the only list of
codes; raising an unlisted one is a bug and fails at once.
"""

from __future__ import annotations

from typing import NoReturn

CODES: dict[str, str] = {
    # WH10: values, types, configuration
    "WH1001": "An unknown element type was named.",
    "WH1002": "A configuration value could not be read or is out of range.",
    "WH1003": "A cached or measured description of the machine is damaged.",
    "WH1004": "A worker process ended before its work was done.",
    "WH1005": "There is not enough memory.",
    "WH1006": "Ray could not be started or reached.",
    "WH1007": "Something in whet failed in a way that nobody foresaw; a report says where.",
    "WH1008": "A package that this needs is not installed or cannot be loaded.",
    "WH1009": "A kind of target is unknown, or its name is taken.",
    "WH1010": "There is no GPU, or its driver refused a call.",
    # WH11: operators and their types
    "WH1101": "An operator was given the wrong number of inputs.",
    "WH1102": "The shapes of an operator's inputs do not fit together.",
    "WH1103": "An operator does not accept an element type.",
    "WH1104": "An operator's attribute is out of range or inconsistent with its inputs.",
    "WH1105": "An operator's definition is inconsistent: its result has not the inferred type.",
    "WH1106": "An operator name is unknown or already taken.",
    "WH1107": "A tensor would be larger than the limit on one value.",
    # WH12: graphs and their text form
    "WH1201": "The text of a graph could not be parsed.",
    "WH1202": "A graph refers to a value that it does not define, or contains a cycle.",
    "WH1203": "The arrays given to a graph do not fit its inputs.",
    "WH1204": "A graph cannot be written as ONNX.",
    # WH13: expressions
    "WH1301": "A scalar or tensor expression is ill-formed.",
    "WH1302": "A tensor is read outside its bounds.",
    "WH1303": "There is no native code for an expression.",
    "WH1304": "Generated code is damaged or calls a function that does not exist.",
    "WH1305": "Code for another processor cannot run on this one.",
    "WH1306": "Threads race: one reads or writes what another wrote, with no barrier between.",
    "WH1307": "A thread reads what is not there yet: not written, still being copied, not awaited.",
    "WH1308": "A statement of threads is ill-formed, or not all threads that it needs reach it.",
    # WH20: front ends
    "WH2001": "The model file cannot be read.",
    "WH2002": "The model contains parts that are not supported.",
    "WH2003": "The model is inconsistent.",
    "WH2004": "External data of the model lies outside its folder or is damaged.",
    "WH2005": "A shape depends on an input's value and no value was given.",
    "WH2006": "The model or one of its tensors is over the size limit.",
    "WH2007": "An input name, shape or type does not fit the model.",
    # WH21: schedules
    "WH2101": "A schedule step names a loop or buffer that the program does not have once.",
    "WH2102": "The extent, factor or tail of a loop is not one that the step can take.",
    "WH2103": "The loops of a step are not nested in each other as it needs.",
    "WH2104": "Iterations of a loop depend on each other.",
    "WH2105": "A buffer is not written and read in the way that the step needs.",
    "WH2106": "A reduction is not one that the step can take apart.",
    "WH2120": "A trace is damaged or incomplete.",
    "WH2121": "A sketch or schedule step is unknown, or its name is taken.",
    "WH2122": "Trees that correct prices are damaged.",
    # WH30: artifacts, calls, peers
    "WH3001": "The artifact cannot be read or is damaged.",
    "WH3002": "The artifact was written by an incompatible version.",
    "WH3003": "A call was made with the wrong number, names, shapes or types of arrays.",
    "WH3004": "Results differ by more than the tolerance.",
    "WH3005": "A peer is not installed or failed.",
    "WH3006": "A file cannot be written.",
    "WH3007": "A command line argument is wrong.",
    "WH3008": "A model that is to be reduced does not show the problem.",
    # WH40: rewrite rules
    "WH4001": "A rewrite rule has no valid proof, or its file is damaged.",
    # WH41: tuning records
    "WH4101": "The tuning database cannot be read or is damaged.",
    "WH4102": "The tuning database cannot be written.",
    "WH4103": "The tuning database was written by a newer version.",
    "WH4104": "A file has no tuning records that whet can take.",
}


class WhetError(Exception):
    """Base of all errors that whet raises on purpose."""

    exit_code = 1

    def __init__(
        self, code: str, message: str, *, details: tuple[str, ...] = (), hint: str | None = None
    ) -> None:
        assert code in CODES, code
        self.code, self.message, self.details, self.hint = code, message, details, hint
        super().__init__(message)

    def __str__(self) -> str:
        lines = [f"{self.code} {self.message}", *(f"  {line}" for line in self.details)]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class WhetWarning(UserWarning):
    """Something that a user should see, in Python: a model that runs slower than it should."""


class UsageError(WhetError):
    """The caller asked for something that makes no sense."""

    exit_code = 2


class UnsupportedError(WhetError):
    """The model is sound but uses something that whet does not have."""

    exit_code = 3


class NoCodeError(UnsupportedError):
    """There is no native code for something; it may be run in another way."""


class ModelError(WhetError):
    """The model file is damaged, inconsistent or too large."""

    exit_code = 4


class ArtifactError(WhetError):
    """A compiled artifact is damaged, hostile or incompatible."""

    exit_code = 5


class ScheduleError(WhetError):
    """A schedule step cannot be applied, or a trace cannot be replayed."""

    exit_code = 2


class MismatchError(WhetError):
    """Two results that should agree do not."""

    exit_code = 6


class RecordsError(WhetError):
    """The tuning database, which nothing but tuning needs, cannot be used."""


class InternalError(WhetError):
    """Something in whet failed in a way that nobody foresaw: please report it."""

    exit_code = 70


class OperatorError(WhetError):
    """An operator cannot be applied to the given types."""

    exit_code = 4


class GraphError(WhetError):
    """A graph or its text is ill-formed."""

    exit_code = 4


def fail(
    code: str,
    message: str,
    *details: str,
    hint: str | None = None,
    kind: type[WhetError] = WhetError,
) -> NoReturn:
    """Raise `kind` with the given code and message."""
    raise kind(code, message, details=details, hint=hint)


def check(
    condition: bool,
    code: str,
    message: str,
    *details: str,
    hint: str | None = None,
    kind: type[WhetError] = WhetError,
) -> None:
    """Raise `kind` unless the condition holds."""
    if not condition:
        raise kind(code, message, details=details, hint=hint)
