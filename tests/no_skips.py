"""A pytest plugin for `make test`: a skipped test fails the run, so that nothing goes unchecked unseen."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn a run that would pass into a failed one when any test was skipped."""
    if _skipped(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(config: pytest.Config) -> None:
    """Say why the run failed."""
    if count := _skipped(config):
        _reporter(config).write_line(f"FAILED: {count} skipped; every test has to run here", red=True)


def _skipped(config: pytest.Config) -> int:
    return len(_reporter(config).stats.get("skipped", []))


def _reporter(config: pytest.Config) -> pytest.TerminalReporter:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    assert isinstance(reporter, pytest.TerminalReporter)
    return reporter
