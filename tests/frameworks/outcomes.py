"""A plugin of pytest that counts what the tests of a framework did, and compares it with a list of expected failures.

The list is a text file: a line "# REASON", and below it the ids of the tests that fail for this reason. "? " before an id:
the test sometimes passes. A failure that is not in the list makes the run fail, and so does a listed test that passes or that
does not exist.
"""

import collections


def read_expected(path):
    """({id: reason}, the ids that may pass) of the list."""
    reasons, may_pass, reason = {}, set(), None
    with open(path, encoding="utf-8") as file:
        for line in file.read().splitlines():
            if line.startswith("#"):
                reason = line[1:].strip()
            elif line.strip():
                test = line.removeprefix("? ")
                if reason is None or test in reasons:
                    raise ValueError(f"{path}: '{test}' " + ("has no reason" if reason is None else "is there twice"))
                reasons[test] = reason
                if test != line:
                    may_pass.add(test)
    return reasons, may_pass


class Outcomes:
    """`expected`: the path of the list; None: no test may fail."""

    def __init__(self, name, expected=None):
        self._name = name
        self._reasons, self._may_pass = read_expected(expected) if expected else ({}, set())
        self._list = expected
        self._outcomes = {}
        self._messages = {}
        self._files = set()

    def pytest_itemcollected(self, item):
        self._outcomes[item.nodeid] = None
        self._files.add(item.nodeid.partition("::")[0])

    def pytest_runtest_logreport(self, report):
        # A failure of the set-up, the test, its subtests or the tear-down is a failure of the test.
        if report.failed:
            self._outcomes[report.nodeid] = "failed"
            crash = getattr(report.longrepr, "reprcrash", None)
            self._messages.setdefault(report.nodeid, crash.message.splitlines()[0][:200] if crash and crash.message else "")
        elif self._outcomes.get(report.nodeid) != "failed":
            if report.skipped:
                self._outcomes[report.nodeid] = "skipped"
            elif report.when == "call" and self._outcomes.get(report.nodeid) is None:
                self._outcomes[report.nodeid] = "passed"

    def _problems(self):
        found = []
        for test, outcome in self._outcomes.items():
            if outcome == "failed" and test not in self._reasons:
                found.append(f"fails, and is not in {self._list}: {test}: {self._messages[test]}")
            elif outcome in ("passed", "skipped") and test in self._reasons and test not in self._may_pass:
                found.append(f"{outcome}, and is in {self._list}: {test}")
        return found + [f"in {self._list}, and does not exist: {test}" for test in self._reasons if test not in self._outcomes]

    def pytest_sessionfinish(self, session, exitstatus):
        # 1: tests have failed. Anything above it is an error of the run itself, which no list excuses.
        if exitstatus in (0, 1):
            session.exitstatus = 1 if self._problems() else 0

    def pytest_terminal_summary(self, terminalreporter):
        counts = collections.Counter(self._outcomes.values())
        terminalreporter.section(self._name)
        for reason, ids in self._by_reason():
            terminalreporter.write_line(f"{len(ids)} expected to fail: {reason}")
        for problem in self._problems():
            terminalreporter.write_line(problem, red=True)
        terminalreporter.write_line(
            f"{self._name}: {len(self._outcomes)} tests in {len(self._files)} files, "
            f"{counts['passed'] + counts['failed']} run, {counts['passed']} passed, {counts['failed']} failed, "
            f"{counts['skipped']} skipped, {counts[None]} not run")

    def _by_reason(self):
        found = collections.defaultdict(list)
        for test, reason in self._reasons.items():
            if self._outcomes.get(test) == "failed":
                found[reason].append(test)
        return found.items()
