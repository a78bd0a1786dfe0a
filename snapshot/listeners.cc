#include "snapshot/listeners.h"

#include <cstdio>
#include <exception>

#include "fmt/format.h"
#include "storage/io/printable_text.h"

namespace tidemark {
namespace {

void WarnOnStandardError(std::string_view line) {
  std::fprintf(stderr, "tidemark: %.*s\n", static_cast<int>(line.size()), line.data());
}

}  // namespace

Listeners::Listeners(const CheckpointerOptions& options)
    : committed_(options.on_committed),
      failed_(options.on_failed),
      deleted_(options.on_deleted),
      evaluated_(options.on_evaluated),
      save_line_(options.on_save_line),
      warning_(options.on_warning) {}

bool Listeners::Keep(const std::function<bool(const StepInfo&)>& keep, const StepInfo& info) const {
  bool wanted = true;
  Call("retention.keep", [&] { wanted = keep(info); });
  return wanted;
}

void Listeners::Call(std::string_view name, const std::function<void()>& call) const {
  try {
    call();
  } catch (const std::exception& error) {
    Warn(fmt::format("CheckpointerOptions::{} threw: {}", name, error.what()));
  } catch (...) {
    Warn(fmt::format("CheckpointerOptions::{} threw something that is no std::exception", name));
  }
}

void Listeners::Committed(const StepInfo& info) const {
  if (committed_) Call("on_committed", [&] { committed_(info); });
}

void Listeners::Failed(int64_t step, const absl::Status& status) const {
  if (failed_) Call("on_failed", [&] { failed_(step, status); });
}

void Listeners::Deleted(int64_t step, std::string_view reason) const {
  if (deleted_) Call("on_deleted", [&] { deleted_(step, reason); });
}

void Listeners::Evaluated(int64_t step, const Evaluation& evaluation) const {
  if (evaluated_) Call("on_evaluated", [&] { evaluated_(step, evaluation); });
}

void Listeners::SaveLine(const std::string& line) const {
  if (save_line_) Call("on_save_line", [&] { save_line_(storage::PrintableText(line)); });
}

void Listeners::Warn(std::string_view text) const {
  const std::string line = storage::PrintableText(text);
  if (!warning_) return WarnOnStandardError(line);
  try {
    warning_(line);
  } catch (...) {
    WarnOnStandardError(line);
  }
}

}  // namespace tidemark
