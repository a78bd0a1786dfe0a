"""Messages of the C++ library reach a caller of Python in the words of Python."""

import pathlib
import re

import numpy as np
import pytest
import tidemark
from tidemark import errors
from tidemark._messages import in_python

ROOT = pathlib.Path(__file__).parents[3]
# Python has no objects of its own there, or calls them in another way.
UNREACHABLE = re.compile(r"^(Companion::\w+|CheckpointObserver::\w+|Future::OnReady was called twice for one result|"
                         r"Promise::Set was called twice|a callback of Future::OnReady|.*something other than a std::exception)$")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
IN_CPP = re.compile(r"\w::\w|\bk[A-Z]\w+|\bWaitUntil\w+")


def literals():
    """(file, text) of the literals of the core that have a name of C++."""
    sources = [path for room in ("snapshot", "storage", "eval") for path in sorted((ROOT / room).rglob("*"))
               if path.suffix in (".cc", ".h") and "torch" not in path.parts]
    for path in sources:
        for line in path.read_text().splitlines():
            if not line.lstrip().startswith(("//", "#include")):
                for text in LITERAL.findall(line):
                    if IN_CPP.search(text):
                        yield path.name, text


FOUND = list(literals())


def test_the_core_has_such_messages():
    assert len(FOUND) > 40


@pytest.mark.parametrize("text", sorted({text for _, text in FOUND if not UNREACHABLE.match(text)}))
def test_no_name_of_cpp_is_left(text):
    assert not IN_CPP.search(in_python(text.replace("{}", "x")))


@pytest.mark.parametrize("said, shown", [
    ("CheckpointerOptions::save_interval_steps is -1; it must be >= 0", "save_interval_steps is -1; it must be >= 0"),
    ("RetentionOptions::max_to_keep is -3", "retention.max_to_keep is -3"),
    ("it changed; call WaitUntilStaged before the optimizer's step, or use Staging::kBlocking",
     'it changed; call wait_until_staged() before the optimizer\'s step, or use staging="blocking"'),
    ("(WhenLagging::kQueue)", '(when_lagging="queue")'), ("Staging::kOnDevice", 'staging="on_device"'),
    ("State::DeviceImage::CopyToHost threw", "the state raised"), ("KeepBest::score threw", "KeepBest.score raised"),
    ("the checkpoint does not fit the state, 1 differences:", "the checkpoint does not fit the state, 1 difference:"),
    ("evaluator 'a' failed at step 3: UNKNOWN: E: UNKNOWN: x", "evaluator 'a' failed at step 3: E: UNKNOWN: x"),
    ("evaluator 'a' of b@c failed at step 3: UNKNOWN: E: x", "evaluator 'a' of b@c failed at step 3: E: x"),
    ("the checkpoint does not fit the state, 21 differences:", "the checkpoint does not fit the state, 21 differences:")])
def test_names_are_those_of_python(said, shown):
    assert in_python(said) == shown


def test_errors_of_calls_have_the_words_of_python(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(1, {"w": np.ones(2)}).committed.result(60)
        with pytest.raises(errors.AlreadyExistsError, match="overwrite=True would replace it"):
            checkpointer.save(1, {"w": np.ones(2)})
        with pytest.raises(errors.NotFoundError, match=r"step 1 is not accepted by accept"):
            checkpointer.restore({"w": np.ones(2)}, 1, accept=lambda info: False)
    with pytest.raises(errors.InvalidArgumentError, match="^retention.max_to_keep is -3"):
        tidemark.Checkpointer(tmp_path / "other", retention=tidemark.Retention(max_to_keep=-3))


def test_warnings_and_reasons_have_the_words_of_python(tmp_path):
    seen = []

    class Observer(tidemark.CheckpointObserver):
        def save_line(self, line):
            seen.append(line)

        def warning(self, line):
            seen.append(line)

    with tidemark.Checkpointer(tmp_path / "store", observer=Observer(), save_timeout=1e-6) as checkpointer:
        checkpointer.save(1, {"w": np.ones(2)}).committed.exception(60)
        reasons = [info.reason for info in checkpointer.steps()]
    assert any("(save_timeout)" in text for text in [*seen, *reasons])
    assert not any("::" in text for text in [*seen, *reasons])
