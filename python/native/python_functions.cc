#include "python/native/python_functions.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "nanobind/stl/map.h"
#include "nanobind/stl/string.h"
#include "python/native/bindings.h"
#include "python/native/interpreter_lock.h"

namespace nb = nanobind;

namespace tidemark::python {
namespace {

// str(object), with escapes for what UTF-8 does not have.
std::string TextOf(nb::handle object) {
  PyObject* const bytes = PyUnicode_AsEncodedString(nb::str(object).ptr(), "utf-8", "backslashreplace");
  if (bytes == nullptr) throw nb::python_error();
  const nb::bytes owned = nb::steal<nb::bytes>(bytes);
  return {owned.c_str(), owned.size()};
}

// As the last line of a traceback, but with all lines of the text. Only the type if the text cannot be had.
std::string TypeAndText(const nb::python_error& error) {
  std::string found = "an exception";
  try {
    found = TextOf(error.type().attr("__name__"));
    const std::string text = TextOf(error.value());
    if (!text.empty()) found += ": " + text;
  } catch (const nb::python_error&) {
  }
  return found;
}

// `argument()` makes the one argument, with the interpreter's lock held.
template <typename Result, typename Argument>
Result Ask(const SharedObject& function, Argument argument) {
  std::string raised;
  {
    const Locked locked;
    if (!locked) throw std::runtime_error("the Python interpreter has ended");
    try {
      return nb::cast<Result>(CallPython(function.get(), nb::object(argument())));
    } catch (const nb::python_error& error) {
      raised = TypeAndText(error);
      if (!error.matches(PyExc_Exception)) nb::setattr(function.get(), "interruption", error.value());
    } catch (const nb::cast_error&) {
      raised = "the function returned neither a bool nor a number";
    }
  }
  throw std::runtime_error(raised);
}

// Null for None.
std::shared_ptr<const SharedObject> SharedOf(nb::object function) {
  return function.is_none() ? nullptr : std::make_shared<const SharedObject>(std::move(function));
}

}  // namespace

std::function<bool(const StepInfo&)> StepPredicateOf(nb::object function) {
  const auto shared = SharedOf(std::move(function));
  if (shared == nullptr) return nullptr;
  return [shared](const StepInfo& info) { return Ask<bool>(*shared, [&] { return DictOf(info); }); };
}

std::function<double(const Metrics&)> ScoreOf(nb::object function) {
  const auto shared = SharedOf(std::move(function));
  if (shared == nullptr) return nullptr;
  return [shared](const Metrics& metrics) { return Ask<double>(*shared, [&] { return nb::cast(metrics); }); };
}

std::function<bool(const SaveQuestion&)> SaveRuleOf(nb::object function) {
  const auto shared = SharedOf(std::move(function));
  if (shared == nullptr) return nullptr;
  return [shared](const SaveQuestion& question) {
    return Ask<bool>(*shared, [&] {
      const nb::object last = question.last_saved.has_value() ? nb::cast(*question.last_saved) : nb::none();
      return nb::make_tuple(question.step, last, absl::ToDoubleSeconds(question.since_last), question.in_flight);
    });
  };
}

std::function<void(const Divergence&)> DivergenceFunctionOf(nb::object function) {
  const auto shared = SharedOf(std::move(function));
  if (shared == nullptr) return nullptr;
  return [shared](const Divergence& divergence) { Ask<bool>(*shared, [&] { return TupleOf(divergence); }); };
}

std::function<void(const RestoreProgress&)> ProgressFunctionOf(nb::object function) {
  const auto shared = SharedOf(std::move(function));
  if (shared == nullptr) return nullptr;
  return [shared](const RestoreProgress& progress) {
    Ask<bool>(*shared, [&] { return nb::make_tuple(progress.step, progress.bytes_done, progress.bytes_total); });
  };
}

nb::tuple TupleOf(const Divergence& divergence) {
  const bool back = divergence.remediation == Remediation::kRollBack;
  return nb::make_tuple(divergence.step, divergence.reason, back ? "roll_back" : "save_more_often");
}

}  // namespace tidemark::python
