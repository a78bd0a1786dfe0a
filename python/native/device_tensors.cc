#include "python/native/device_tensors.h"

#include <exception>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "nanobind/stl/pair.h"
#include "nanobind/stl/string.h"

namespace nb = nanobind;

namespace tidemark::python {
namespace {

// function() with the interpreter's lock, on a thread of its own. It returns a status.
template <typename Function>
absl::Status OnThread(Function function) {
  absl::Status status;
  std::thread thread([&] {
    const Locked locked;
    if (!locked) {
      status = absl::CancelledError("the Python interpreter has ended");
      return;
    }
    try {
      status = function();
    } catch (const nb::python_error& error) {
      status = absl::InternalError(std::string("copying tensors on devices: ") + error.what());
    } catch (const std::exception& error) {
      status = absl::InternalError(std::string("copying tensors on devices: ") + error.what());
    }
  });
  thread.join();
  return status;
}

// object.method(argument), which returns (code, message, result).
absl::Status Call(nb::handle object, const char* method, const nb::object& argument, nb::object* result = nullptr) {
  const nb::object returned = CallPython(nb::getattr(object, method), argument);
  const auto [code, message, found] = nb::cast<std::tuple<int, std::string, nb::object>>(returned);
  if (result != nullptr) *result = found;
  return absl::Status(static_cast<absl::StatusCode>(code), message);
}

// [(entry, address, bytes)], of those that have bytes.
nb::object TuplesOf(std::span<const DeviceTensors::Request> requests) {
  nb::list out;
  for (const DeviceTensors::Request& request : requests) {
    if (request.bytes == 0) continue;
    out.append(nb::make_tuple(request.entry, reinterpret_cast<uint64_t>(request.destination), request.bytes));
  }
  return out;
}

}  // namespace

DeviceTensors::DeviceTensors(nb::object object) : object_(std::make_shared<const SharedObject>(std::move(object))) {}

absl::Status DeviceTensors::CopyToHost(std::span<const Request> requests) {
  return OnThread([&] { return Call(object_->get(), "copy_to_host", TuplesOf(requests)); });
}

absl::Status DeviceTensors::WriteAll(std::span<const Write> writes) {
  return OnThread([&] {
    nb::list tuples;
    for (const Write& write : writes) {
      if (write.bytes.empty()) continue;
      tuples.append(nb::make_tuple(write.entry, reinterpret_cast<uint64_t>(write.bytes.data()), write.bytes.size()));
    }
    return Call(object_->get(), "write", tuples);
  });
}

DeviceTensors::Image::Image(nb::object object) : object_(std::make_shared<const SharedObject>(object)) {
  bytes_ = nb::cast<uint64_t>(object.attr("bytes"));
}

absl::Status DeviceTensors::Image::CopyToHost(std::span<const Request> requests) {
  return OnThread([&] { return Call(object_->get(), "copy_to_host", TuplesOf(requests)); });
}

absl::StatusOr<std::unique_ptr<DeviceTensors::Image>> DeviceTensors::CopyOnDevice(std::span<const size_t> entries,
                                                                                  uint64_t bytes_max) {
  std::unique_ptr<Image> image;
  const absl::Status status = OnThread([&] {
    nb::list indices;
    for (const size_t entry : entries) indices.append(nb::cast(entry));
    nb::object made;
    absl::Status called = Call(object_->get(), "copy_on_device", nb::make_tuple(indices, bytes_max), &made);
    if (called.ok() && !made.is_none()) image = std::make_unique<Image>(std::move(made));
    return called;
  });
  if (!status.ok()) return status;
  return image;
}

std::shared_ptr<std::byte> DeviceTensors::AllocatePageLocked(uint64_t bytes) {
  std::shared_ptr<std::byte> memory;
  const absl::Status status = OnThread([&] {
    DropGivenUp();
    const nb::object made =
        CallPython(nb::module_::import_("tidemark._state.devices").attr("page_locked"), nb::object(nb::cast(bytes)));
    if (made.is_none()) return absl::OkStatus();
    auto [address, owner] = nb::cast<std::pair<uint64_t, nb::object>>(made);
    // A shared_ptr that cannot be made calls the deleter, too.
    memory = std::shared_ptr<std::byte>(reinterpret_cast<std::byte*>(address),
                                        [object = owner.release().ptr()](std::byte*) { GiveUp(object); });
    return absl::OkStatus();
  });
  return status.ok() ? memory : nullptr;
}

}  // namespace tidemark::python
