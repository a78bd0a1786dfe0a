#include "snapshot/torch/torch_errors.h"

#include <exception>
#include <new>

#include "c10/util/Exception.h"
#include "fmt/format.h"

namespace tidemark {

absl::Status StatusOfException(std::string_view what) {
  try {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(fmt::format("{}: LibTorch: {}", what, error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    return absl::InternalError(fmt::format("{}: LibTorch: {}", what, error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(fmt::format("{}: out of memory", what));
  } catch (const std::exception& error) {
    return absl::InternalError(fmt::format("{}: {}", what, error.what()));
  } catch (...) {
    return absl::InternalError(fmt::format("{}: an exception of unknown type", what));
  }
}

}  // namespace tidemark
