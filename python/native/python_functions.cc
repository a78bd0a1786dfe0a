#include "python/native/python_functions.h"

#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nanobind/stl/map.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
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

// With the interpreter's lock held: of an exception that is no Exception.
void NoteInterruption(const SharedObject& function, const nb::python_error& error) {
  if (!error.matches(PyExc_Exception)) nb::setattr(function.get(), "interruption", error.value());
}

std::string TypeNameOf(nb::handle object) { return TextOf(object.type().attr("__name__")); }

bool IsBytes(nb::handle object) {
  return PyBytes_Check(object.ptr()) != 0 || PyByteArray_Check(object.ptr()) != 0 ||
         PyMemoryView_Check(object.ptr()) != 0;
}

// What an all-gather returned. With the interpreter's lock held; throws nanobind::python_error.
absl::StatusOr<std::vector<std::string>> GatheredOf(nb::handle result, int32_t world_size) {
  const std::string wanted = "not a sequence of " + std::to_string(world_size) + " byte strings, one of each rank";
  if (PySequence_Check(result.ptr()) == 0) {
    return absl::InvalidArgumentError("all_gather returned a value of type " + TypeNameOf(result) + ", " + wanted);
  }
  const Py_ssize_t size = PySequence_Size(result.ptr());
  if (size < 0) throw nb::python_error();
  if (size != world_size) {
    return absl::InvalidArgumentError("all_gather returned a " + TypeNameOf(result) + " of " + std::to_string(size) +
                                      ", " + wanted);
  }
  std::vector<std::string> gathered;
  gathered.reserve(static_cast<size_t>(size));
  for (Py_ssize_t rank = 0; rank < size; ++rank) {
    const nb::object item = nb::steal(PySequence_GetItem(result.ptr(), rank));
    if (!item.is_valid()) throw nb::python_error();
    if (!IsBytes(item)) {
      return absl::InvalidArgumentError("all_gather returned a value of type " + TypeNameOf(item) + " for rank " +
                                        std::to_string(rank) + ", not bytes");
    }
    const nb::object bytes = nb::steal(PyBytes_FromObject(item.ptr()));
    if (!bytes.is_valid()) throw nb::python_error();
    gathered.emplace_back(PyBytes_AsString(bytes.ptr()), static_cast<size_t>(PyBytes_Size(bytes.ptr())));
  }
  return gathered;
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
      NoteInterruption(function, error);
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

ValuesLook ValuesLookOf(nb::object function) {
  const auto shared = SharedOf(std::move(function));
  if (shared == nullptr) return nullptr;
  return [shared](const std::map<std::string, Received>& received, std::span<const EntrySpec> tensors) {
    Ask<bool>(*shared, [&] {
      nb::dict found;
      for (const auto& [name, value] : received) found[name.c_str()] = TupleOf(value);
      for (const EntrySpec& spec : tensors) found[spec.name.c_str()] = TupleOf(Received{.spec = spec, .bytes = {}});
      return found;
    });
  };
}

AllGather AllGatherOf(nb::object function, int32_t world_size) {
  const auto shared = SharedOf(std::move(function));
  if (shared == nullptr) return nullptr;
  return [shared, world_size](const std::string& given) -> absl::StatusOr<std::vector<std::string>> {
    const Locked locked;
    if (!locked) return absl::CancelledError("the Python interpreter has ended");
    try {
      return GatheredOf(CallPython(shared->get(), nb::bytes(given.data(), given.size())), world_size);
    } catch (const nb::python_error& error) {
      NoteInterruption(*shared, error);
      return absl::InternalError("all_gather raised " + TypeAndText(error));
    }
  };
}

nb::tuple TupleOf(const Received& received) {
  return nb::make_tuple(std::string(EntryKindName(received.spec.kind)),
                        std::string(GetDtypeInfo(received.spec.dtype).name), received.spec.held_shape(),
                        nb::bytearray(received.bytes.data(), received.bytes.size()), !received.spec.whole());
}

nb::tuple TupleOf(const Divergence& divergence) {
  const bool back = divergence.remediation == Remediation::kRollBack;
  return nb::make_tuple(divergence.step, divergence.reason, back ? "roll_back" : "save_more_often");
}

}  // namespace tidemark::python
