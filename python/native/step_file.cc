// StoreReader and StepReader for Python: one step of a store, read in pieces.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nanobind/nanobind.h"
#include "nanobind/stl/map.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "python/native/bindings.h"
#include "python/native/interpreter_lock.h"
#include "python/native/signals.h"
#include "python/native/status_error.h"
#include "tidemark/store_reader.h"

namespace nb = nanobind;

namespace tidemark::python {
namespace {

struct StepFile {
  std::unique_ptr<StepReader> reader;
};

absl::StatusOr<std::unique_ptr<StoreReader>> OpenStore(const std::string& directory, bool untrusted) {
  return untrusted ? StoreReader::OpenUntrusted(directory) : StoreReader::Open(directory);
}

absl::StatusOr<StepFile> OpenStepFile(const std::string& directory, const StepSelector& selector, bool untrusted) {
  absl::StatusOr<std::unique_ptr<StoreReader>> store = OpenStore(directory, untrusted);
  if (!store.ok()) return store.status();
  absl::StatusOr<std::unique_ptr<StepReader>> reader = (*store)->OpenSelected(selector, StepView::kWholes);
  if (!reader.ok()) return reader.status();
  return StepFile{*std::move(reader)};
}

absl::StatusOr<VerifyReport> Verify(const std::string& directory, const StepSelector& selector,
                                    const VerifyOptions& options, bool untrusted, int64_t* step) {
  absl::StatusOr<std::unique_ptr<StoreReader>> store = OpenStore(directory, untrusted);
  if (!store.ok()) return store.status();
  absl::StatusOr<StepInfo> info = (*store)->FindStep(selector);
  if (!info.ok()) return info.status();
  *step = info->step;
  return (*store)->Verify(info->step, options);
}

// function(store, step) of the selected step.
template <typename Result, typename Function>
absl::StatusOr<Result> OfStep(const std::string& directory, const std::string& text, Function function) {
  const absl::StatusOr<StepSelector> selector = StepSelector::Parse(text);
  if (!selector.ok()) return selector.status();
  absl::StatusOr<std::unique_ptr<StoreReader>> store = OpenStore(directory, false);
  if (!store.ok()) return store.status();
  absl::StatusOr<StepInfo> info = (*store)->FindStep(*selector);
  if (!info.ok()) return info.status();
  return function(**store, info->step);
}

// Bytes that are read between two looks for signals: a tenth of a second from a fast disk.
constexpr uint64_t kReadBytes = 256 << 20;

// read(begin, end) of all `bytes`, in pieces of whole rows, until one fails or a handler of a signal raises.
template <typename Read>
void ReadInPieces(uint64_t bytes, uint64_t row_bytes, const Read& read) {
  const uint64_t piece = row_bytes == 0 ? bytes : std::max(row_bytes, kReadBytes / row_bytes * row_bytes);
  Signals signals;
  absl::Status status;
  {
    const Unlocked unlocked;
    uint64_t begin = 0;
    do {
      const uint64_t end = std::min(bytes, begin + piece);
      status = read(begin, end);
      begin = end;
    } while (status.ok() && begin < bytes && !signals.Check());
  }
  signals.Raise();
  RaiseUnlessOk(status);
}

}  // namespace

void BindStepFile(nb::module_& module) {
  nb::class_<StepFile>(module, "StepFile")
      .def("info", [](const StepFile& file) { return DictOf(file.reader->contents().info); })
      .def(
          "entries",
          [](const StepFile& file) {
            nb::list out;
            for (const StoredEntry& entry : file.reader->contents().entries) {
              out.append(nb::make_tuple(entry.spec.name, std::string(EntryKindName(entry.spec.kind)),
                                        std::string(GetDtypeInfo(entry.spec.dtype).name), entry.spec.held_shape(),
                                        entry.bytes, entry.spec.whole()));
            }
            return out;
          },
          "[(name, kind, dtype, shape, bytes, whether all of the tensor is here)]")
      .def(
          "read",
          [](const StepFile& file, size_t entry, uint64_t offset, uint64_t address, uint64_t bytes) {
            const std::span destination(reinterpret_cast<std::byte*>(address), static_cast<size_t>(bytes));
            ReadInPieces(bytes, 1, [&](uint64_t begin, uint64_t end) {
              const StepReader::Window window{
                  .entry = entry, .offset = offset + begin, .destination = destination.subspan(begin, end - begin)};
              return file.reader->Read({&window, 1});
            });
          },
          "Reads [offset, offset + bytes) of the entry to the address, which must stay valid meanwhile.")
      .def(
          "read_box",
          [](const StepFile& file, const std::string& name, const std::vector<int64_t>& offset,
             const std::vector<int64_t>& extent, uint64_t address, uint64_t bytes) {
            const std::span destination(reinterpret_cast<std::byte*>(address), static_cast<size_t>(bytes));
            // Along the first dimension that has a length: its rows lie one behind the other at the address.
            const auto longer = std::find_if(extent.begin(), extent.end(), [](int64_t length) { return length > 1; });
            const auto d = static_cast<size_t>(longer - extent.begin());
            const uint64_t row_bytes = longer == extent.end() ? bytes : bytes / static_cast<uint64_t>(*longer);
            ReadInPieces(bytes, row_bytes, [&](uint64_t begin, uint64_t end) {
              std::vector<int64_t> from = offset, size = extent;
              if (begin > 0 || end < bytes) {
                from[d] += static_cast<int64_t>(begin / row_bytes);
                size[d] = static_cast<int64_t>((end - begin) / row_bytes);
              }
              return file.reader->ReadBox(name, from, size, destination.subspan(begin, end - begin));
            });
          },
          "Reads the elements [offset[d], offset[d] + extent[d]) of each dimension d of the tensor to the address, "
          "which must stay valid meanwhile.")
      .def("read_bytes", [](const StepFile& file, size_t entry) {
        std::vector<std::byte> bytes(file.reader->contents().entries.at(entry).bytes);
        const StepReader::Window window{.entry = entry, .offset = 0, .destination = bytes};
        absl::Status status;
        {
          const Unlocked unlocked;
          status = file.reader->Read({&window, 1});
        }
        RaiseUnlessOk(status);
        return nb::bytes(bytes.data(), bytes.size());
      });
  module.def("list_steps", [](const std::string& directory, bool untrusted) {
    absl::StatusOr<std::unique_ptr<StoreReader>> store;
    {
      const Unlocked unlocked;
      store = OpenStore(directory, untrusted);
    }
    RaiseUnlessOk(store.status());
    nb::list out;
    for (const StepInfo& info : (*store)->Steps()) out.append(DictOf(info));
    return out;
  });
  module.def("verify_step",
             [](const std::string& directory, const std::string& text, double share, uint64_t seed, bool untrusted) {
               VerifyOptions options{.share = share, .seed = seed};
               const StepSelector selector = ValueOrRaise(StepSelector::Parse(text));
               absl::StatusOr<VerifyReport> report;
               int64_t step = 0;
               Signals signals;
               {
                 const Unlocked unlocked;
                 report = signals.Await([&](std::function<bool()> cancelled) {
                   options.cancelled = std::move(cancelled);
                   return Verify(directory, selector, options, untrusted, &step);
                 });
               }
               signals.Raise();
               RaiseUnlessOk(report.status());
               nb::list damage;
               for (const Damage& one : report->damage) damage.append(nb::make_tuple(one.path, one.what, one.entries));
               return nb::make_tuple(step, report->bytes_read, report->chunks, report->chunks_total, damage);
             });
  module.def(
      "phases",
      [](const std::string& directory, const std::string& text) {
        absl::StatusOr<std::vector<SavePhase>> phases;
        {
          const Unlocked unlocked;
          phases = OfStep<std::vector<SavePhase>>(directory, text,
                                                  [](StoreReader& store, int64_t step) { return store.Phases(step); });
        }
        nb::list out;
        for (const SavePhase& phase : ValueOrRaise(std::move(phases))) {
          out.append(nb::make_tuple(phase.name, phase.lane, absl::ToDoubleSeconds(phase.begin),
                                    absl::ToDoubleSeconds(phase.duration), absl::ToDoubleSeconds(phase.busy),
                                    phase.bytes));
        }
        return out;
      },
      "[(name, lane, begin, duration, busy, bytes)]");
  module.def("references", [](const std::string& directory, const std::string& text) {
    absl::StatusOr<std::vector<std::string>> attempts;
    {
      const Unlocked unlocked;
      attempts = OfStep<std::vector<std::string>>(
          directory, text, [](StoreReader& store, int64_t step) { return store.References(step); });
    }
    return ValueOrRaise(std::move(attempts));
  });
  module.def("open_step", [](const std::string& directory, const std::string& text, bool untrusted) {
    const StepSelector selector = ValueOrRaise(StepSelector::Parse(text));
    absl::StatusOr<StepFile> file;
    {
      const Unlocked unlocked;
      file = OpenStepFile(directory, selector, untrusted);
    }
    return ValueOrRaise(std::move(file));
  });
}

}  // namespace tidemark::python
