#include "storage/io/exception_status.h"

#include <exception>
#include <new>

#include "fmt/format.h"

namespace tidemark::storage {

absl::Status ExceptionStatus(std::string_view subject, std::string_view object) noexcept {
  const std::string_view space = object.empty() ? "" : " ";
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(fmt::format("{}{}{}: the system has no memory", subject, space, object));
    } catch (const std::exception& error) {
      return absl::InternalError(fmt::format("{}{}{} threw: {}", subject, space, object, error.what()));
    } catch (...) {
      return absl::InternalError(
          fmt::format("{}{}{} threw something other than a std::exception", subject, space, object));
    }
  } catch (...) {
    // There is no memory for the message either.
    return absl::Status(absl::StatusCode::kResourceExhausted, "");
  }
}

}  // namespace tidemark::storage
