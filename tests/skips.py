"""Skipped tests: for want of another processor and nothing else, and listed at the end of a run.

What else a test needs, the development environment brings: a test that is skipped for another
reason fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import TypeVar

import pytest

ANOTHER_PROCESSOR = "needs another processor: "
"""What the reason for skipping a test begins with."""

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why a test or a whole module was skipped."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


def checked(report: Report) -> Report:
    """The report, as a failure if it is a skip for another reason."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = reason_of(report)
        if not reason.startswith(ANOTHER_PROCESSOR):
            report.outcome = "failed"
            report.longrepr = f"skipped, and not for want of a processor: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return checked((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return checked((yield))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists what was skipped and why, wherever it ran."""
    reasons = Counter(map(reason_of, terminalreporter.stats.get("skipped", [])))
    if reasons:
        terminalreporter.section("skipped")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:6d}  {reason}")
    else:
        terminalreporter.write_line("nothing was skipped")
