#include <memory>
#include <string>

#include "fmt/format.h"
#include "storage/io/file_system.h"
#include "storage/io/link_free_path.h"
#include "storage/manifest/manifest_dump.h"
#include "storage/manifest/store_identity.h"
#include "storage/manifest/store_layout.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// One field of the record on each line.
std::string FieldLines(const std::string& value) {
  if (value.empty()) return "";
  const Json fields = ParseOrdered(value);
  std::string text;
  for (const auto& [name, field] : fields.items()) text += fmt::format("  {}: {}", Escape(name), DumpLine(field));
  return text;
}

std::string FormatRecord(const Console& console, const storage::DumpedRecord& record) {
  const std::string key = console.Paint(Escape(record.key), Colour::kHeading) + "\n";
  if (record.status.ok()) return key + FieldLines(record.value);
  return key + fmt::format("  {} {}\n  bytes: {}\n", console.Paint("cannot be decoded:", Colour::kBad),
                           Escape(std::string(record.status.message())), Escape(record.value));
}

std::string Hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

Json RecordToJson(const storage::DumpedRecord& record) {
  Json json = {{"key", record.key}, {"value", nullptr}, {"problem", nullptr}, {"bytes", nullptr}};
  if (!record.status.ok()) {
    json["problem"] = std::string(record.status.message());
    json["bytes"] = Hexadecimal(record.value);
  } else if (!record.value.empty()) {
    json["value"] = ParseOrdered(record.value);
  }
  return json;
}

Json HeadToJson(const std::string& directory, const absl::StatusOr<storage::StoreId>& id) {
  return {{"schema_version", kSchemaVersion},
          {"store", {{"directory", directory}, {"id", id.ok() ? Json(storage::ToHex(id->bytes)) : Json(nullptr)}}}};
}

}  // namespace

ExitCode DumpManifestRecords(const Session& session, const std::string& prefix) {
  Console& console = session.console;
  const storage::StoreLayout layout(storage::FollowLinks(session.directory));
  storage::FileSystem& files = storage::PosixFileSystem();
  const absl::StatusOr<storage::StoreId> id = storage::ReadStoreIdentity(files, layout);
  if (absl::IsNotFound(id.status()) || absl::IsFailedPrecondition(id.status())) {
    console.Fail(fmt::format("{} is not a Tidemark store: {}", session.directory, std::string(id.status().message())));
    return ExitCode::kNoStore;
  }
  // What is wrong with that file does not hide what the manifest says, but for its being of a newer version.
  if (!id.ok() && !absl::IsDataLoss(id.status())) {
    console.Fail(id.status());
    return OpenExitCode(id.status());
  }
  if (!id.ok()) console.Warn(std::string(id.status().message()));

  size_t shown = 0;
  size_t undecoded = 0;
  const auto show = [&](const storage::DumpedRecord& record) {
    if (session.json && shown == 0) console.PrintData(DumpLine(HeadToJson(session.directory, id)));
    console.PrintData(session.json ? DumpLine(RecordToJson(record)) : FormatRecord(console, record));
    ++shown;
    undecoded += record.status.ok() ? 0 : 1;
    return true;
  };
  const absl::Status dumped = storage::DumpManifest(files, layout.manifest(), prefix, show);
  if (!dumped.ok()) {
    console.Fail(dumped);
    return StepExitCode(dumped);
  }
  if (shown == 0) {
    console.Fail(fmt::format("no record's key begins with '{}'", prefix));
    return ExitCode::kFailure;
  }
  if (undecoded == 0) return ExitCode::kOk;
  console.Fail(fmt::format("{1} of {0} records cannot be decoded", shown, undecoded));
  return ExitCode::kDamagedButUsable;
}

void AddManifest(CommandLine& line) {
  const auto prefix = std::make_shared<std::string>();
  CLI::App* manifest = line.Add(
      {.group = CommandGroup::kPlace,
       .name = "manifest",
       .description = "Print the records of the manifest",
       .why_trusted = "manifest opens RocksDB, which is not safe on malicious files; --untrusted does not allow it"},
      [prefix](const Session& session) { return DumpManifestRecords(session, *prefix); });
  manifest->require_subcommand(1);
  CLI::App* dump = manifest->add_subcommand("dump", "Print the records as text");
  dump->add_option("--prefix", *prefix, "Only records whose printed key begins with P")->type_name("P");
  // A command of a command begins with the footer of the whole.
  for (CLI::App* command : {manifest, dump}) {
    command->footer(R"(
Examples:
  checkpoint-inspect --store run/ckpt manifest dump
  checkpoint-inspect --store run/ckpt manifest dump --prefix step/1000
  checkpoint-inspect --store run/ckpt --json manifest dump --prefix metric/)");
  }
}

}  // namespace tidemark::inspect
