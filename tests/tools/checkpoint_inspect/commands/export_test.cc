#include "tools/checkpoint_inspect/commands/export.h"

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "snapshot/exchange/safetensors_header.h"
#include "tests/snapshot/saved_by_ranks.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tidemark/export.h"
#include "tidemark/store_reader.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/exchange/safetensors.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kLoss = 0.1;

class ExportTest : public testing::Test {
 protected:
  ExportTest() {
    store_.Save({1, 2}, {.metrics = {{"loss", kLoss}}, .user_metadata = R"({ "run": 7 })"});
    fs::create_directories(folder_);
  }

  std::string Out(const std::string& name) const { return folder_ + "/" + name; }

  Finished Export(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--store", store_.directory(), "export"});
    return RunInspect(arguments);
  }

  // Names in the folder of the outputs, hidden ones included.
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.insert(entry.path().filename());
    return names;
  }

  // What the store has of step 2.
  std::string Stored(const std::string& name) const {
    const auto reader = StoreReader::Open(store_.directory());
    EXPECT_TRUE(reader.ok()) << reader.status();
    const auto bytes = (*reader)->ReadEntry(2, name);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
  }

  static json HeaderOf(const std::string& path) {
    const std::string file = ReadWhole(path);
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof(length));
    return ParseJson(file.substr(sizeof(length), length));
  }

  static std::string Read(const TensorSource& source, const std::string& name) {
    for (size_t i = 0; i < source.entries().size(); ++i) {
      if (source.entries()[i].spec.name != name) continue;
      std::string bytes(source.entries()[i].bytes, '\0');
      const StepReader::Window window{.entry = i, .destination = std::as_writable_bytes(std::span(bytes))};
      EXPECT_EQ(source.Read({&window, 1}), absl::OkStatus());
      return bytes;
    }
    ADD_FAILURE() << name << " is not in " << source.name();
    return "";
  }

  const TestStore store_;
  const TestStore elsewhere_;
  const std::string folder_ = elsewhere_.directory() + "/out";
};

TEST_F(ExportTest, SafetensorsHaveTheTensorsAndSayTheRest) {
  const std::string out = Out("m.safetensors");
  const Finished finished = Export({"latest", "-o", out});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr(out + ": step 2, "));
  EXPECT_THAT(finished.err, HasSubstr("1 tied tensor is written once"));
  EXPECT_THAT(finished.err, HasSubstr("5 non-tensor values were written to the metadata as text"));
  EXPECT_THAT(Names(), ElementsAre("m.safetensors"));

  const auto source = OpenSafetensors(out);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->entries().size(), 3u);
  for (const char* name : {"model.weight", "model.bias", "model.tied"}) EXPECT_EQ(Read(**source, name), Stored(name));
  const json metadata = HeaderOf(out).at("__metadata__");
  EXPECT_EQ(metadata.at("format"), "pt");
  EXPECT_EQ(metadata.at("tidemark.step"), "2");
  EXPECT_EQ(ParseJson(metadata.at("tidemark.metrics").get<std::string>()), json({{"loss", kLoss}}));
  EXPECT_EQ(metadata.at("tidemark.store").get<std::string>().size(), 32u);
  EXPECT_EQ(metadata.at("model.tied_too"), "model.tied");
  EXPECT_EQ(metadata.at("epoch"), "3");
  EXPECT_EQ(metadata.at("rate"), "0.125");
  EXPECT_EQ(metadata.at("ended"), "false");
  EXPECT_EQ(metadata.at("text"), "hello");
  EXPECT_EQ(metadata.at("blob"), "AAA=");
  EXPECT_EQ(metadata.at("tidemark.kind.epoch"), "int64");
  EXPECT_EQ(metadata.at("tidemark.kind.blob"), "bytes");
  EXPECT_EQ(metadata.at("tidemark.kind.model.tied_too"), "tied");
  EXPECT_EQ(metadata.at("tidemark.user_metadata"), R"({ "run": 7 })");
}

TEST_F(ExportTest, UserMetadataThatCannotBeReadBackIsLeftOutAndThatIsSaid) {
  const auto note = [&](const std::string& text) {
    store_.Update(2, [&](StepInfo& info) { info.user_metadata = text; });
    const Finished finished = Export({"2", "-o", Out("m"), "--force"});
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_FALSE(HeaderOf(Out("m")).at("__metadata__").contains("tidemark.user_metadata"));
    return finished.err;
  };
  EXPECT_THAT(note("[1]"),
              HasSubstr("checkpoint-inspect: the step's user metadata is left out: it is not a JSON object of "
                        "at most 8192 keys, 32768 values and a depth of 256\n"));
  std::string values = R"({"a":[0)";
  for (int i = 0; i < 40'000; ++i) values += ",0";
  EXPECT_THAT(note(values + "]}"),
              HasSubstr("the step's user metadata is left out: it is not a JSON object of at most"));
  // Which nobody parses.
  const std::string large = std::string(1 << 20, '[') + "]";
  EXPECT_THAT(note(large), HasSubstr("checkpoint-inspect: the step's user metadata is left out: 1048577 bytes, where "
                                     "1048576 are exported\n"));
}

TEST_F(ExportTest, ManyMetricsAreLeftOutAndThatIsSaid) {
  store_.Update(2, [](StepInfo& info) {
    for (int i = 0; i < 300; ++i) info.metrics[std::string(4000, 'm') + std::to_string(i)] = i;
  });
  const Finished finished = Export({"2", "-o", Out("m")});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("checkpoint-inspect: the step's metrics are left out: "));
  EXPECT_FALSE(HeaderOf(Out("m")).at("__metadata__").contains("tidemark.metrics"));
}

TEST_F(ExportTest, ManyBytesAreSeveralFilesAndAnIndex) {
  const Finished finished = Export({"2", "model.*", "-o", Out("m.safetensors"), "--shard-size", "20100"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(Names(),
              ElementsAre("m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors", "m.safetensors.index.json"));
  const json index = ParseJson(ReadWhole(Out("m.safetensors.index.json")));
  EXPECT_EQ(index.at("metadata").at("total_size"), 2 * 20'000 + 12);
  EXPECT_EQ(index.at("weight_map").at("model.weight"), "m-00001-of-00002.safetensors");
  const auto source = OpenSafetensors(Out("m.safetensors.index.json"));
  ASSERT_TRUE(source.ok()) << source.status();
  for (const char* name : {"model.weight", "model.bias", "model.tied"}) EXPECT_EQ(Read(**source, name), Stored(name));
}

TEST_F(ExportTest, TensorsAreConvertedAndRenamed) {
  const Finished finished = Export({"2", "-o", Out("m"), "--include", "model.*", "--exclude", "model.tied*", "--rename",
                                    "model.bias=b", "--rename", "model=", "--dtype", "bfloat16"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  const auto source = OpenSafetensors(Out("m"));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(Read(**source, "b"), std::string("\x80\x3f\x80\x3f\x80\x3f", 6));
  EXPECT_EQ(Read(**source, "weight").size(), 10'000u);
}

TEST_F(ExportTest, NpzHasAMemberForEachEntry) {
  const Finished finished = Export({"2", "-o", Out("m.npz")});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(finished.err, "");
  const std::string archive = ReadWhole(Out("m.npz"));
  for (const char* name : {"model.weight", "model.tied_too", "epoch", "blob"}) {
    EXPECT_THAT(archive, HasSubstr(std::string(name) + ".npy"));
  }
  EXPECT_THAT(archive, HasSubstr(Stored("model.weight")));
}

TEST_F(ExportTest, NpzRefusesWhatNumpyDoesNotHave) {
  const Finished finished = Export({"2", "model.bias", "-o", Out("m.npz"), "--dtype", "bfloat16"});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err, HasSubstr("numpy has no dtype for 'model.bias' of bfloat16"));
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(ExportTest, RawHasAFileForEachEntry) {
  const Finished finished = Export({"2", "--format", "raw", "-o", Out("raw")});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  const json index = ParseJson(ReadWhole(Out("raw/index.json")));
  std::set<std::string> files;
  for (const json& entry : index.at("entries")) {
    const std::string file = entry.at("file");
    EXPECT_EQ(ReadWhole(Out("raw/" + file)), Stored(entry.at("name"))) << file;
    files.insert(file);
  }
  EXPECT_EQ(index.at("entries").size(), 9u);
  EXPECT_EQ(files.size(), 8u);
  EXPECT_EQ(index.at("metadata").at("tidemark.step"), "2");
  EXPECT_THAT(Names(), ElementsAre("raw"));
}

// So what tests/interop.py holds of the tool's files against Python's safetensors is true of the library's.
TEST_F(ExportTest, SafetensorsAreByteForByteWhatTheLibraryExports) {
  const auto reader = StoreReader::Open(store_.directory());
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto are_same = [&](std::vector<std::string> arguments, const ExportOptions& options) {
    arguments.insert(arguments.end(), {"-o", Out("tool"), "--force"});
    EXPECT_EQ(Export(arguments).exit_code, 0);
    const absl::Status exported = ExportSafetensors(**reader, 2, Out("library"), options).status();
    EXPECT_TRUE(exported.ok()) << exported;
    return ReadWhole(Out("tool")) == ReadWhole(Out("library"));
  };
  EXPECT_TRUE(are_same({"2"}, {.replace = true}));
  EXPECT_TRUE(
      are_same({"2", "model.*", "--rename", "model=net", "--dtype", "bfloat16"},
               {.entries = {"model.*"}, .renames = {{"model", "net"}}, .dtype = Dtype::kBfloat16, .replace = true}));
}

TEST_F(ExportTest, WhatSeveralRanksSavedIsOneTensor) {
  const std::string directory = elsewhere_.directory() + "/ranks";
  std::vector<float> numbers(6 * 8);
  std::iota(numbers.begin(), numbers.end(), 1.0F);
  const auto bytes = std::as_bytes(std::span(numbers));
  const EntrySpec tensor{.name = "w", .dtype = Dtype::kFloat32, .shape = {6, 8}};
  std::deque<RankContents> ranks(2);
  ranks[0].AddBox(tensor, bytes, {{0, 0}, {6, 3}});
  ranks[1].AddBox(tensor, bytes, {{0, 3}, {6, 5}});
  {
    std::string warnings;
    auto store = storage::OpenStore(directory, &warnings);
    ASSERT_TRUE(store.ok()) << store.status();
    ASSERT_EQ(SaveByRanks(**store, 1, ranks, storage::kChunkBytesMin), absl::OkStatus());
  }
  const std::string out = Out("m.safetensors");
  const Finished finished = RunInspect({"--store", directory, "export", "latest", "-o", out});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(HeaderOf(out)["w"]["shape"], json({6, 8}));
  EXPECT_TRUE(ReadWhole(out).ends_with(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
  // Its parts, one after the other.
  const Finished listed = RunInspect({"--store", directory, "--json", "tensors", "latest"});
  EXPECT_EQ(ParseJson(listed.out)["entries"].size(), 2) << listed.out;
}

TEST_F(ExportTest, WhatIsThereIsReplacedOnlyByForce) {
  WriteWhole(Out("m"), "old");
  const Finished refused = Export({"2", "-o", Out("m")});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("exists; --force replaces it"));
  EXPECT_EQ(ReadWhole(Out("m")), "old");
  EXPECT_EQ(Export({"2", "-o", Out("m"), "--force"}).exit_code, 0);
  EXPECT_TRUE(OpenSafetensors(Out("m")).ok());
  fs::create_directory(Out("raw"));
  const Finished folder = Export({"2", "-o", Out("raw"), "--format", "raw"});
  EXPECT_EQ(folder.exit_code, 1);
  EXPECT_THAT(folder.err, HasSubstr("export never replaces a folder"));
}

TEST_F(ExportTest, AShardThatIsThereKeepsAllFromBeingWritten) {
  WriteWhole(Out("m-00002-of-00002.safetensors"), "old");
  const Finished finished = Export({"2", "model.*", "-o", Out("m.safetensors"), "--shard-size", "20100"});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(Names(), ElementsAre("m-00002-of-00002.safetensors"));
}

TEST_F(ExportTest, NothingIsLeftOfWhatCannotBeRead) {
  store_.DamageChunk(2);
  for (const char* format : {"safetensors", "npz", "raw"}) {
    const Finished finished = Export({"2", "-o", Out("m"), "--format", format});
    EXPECT_EQ(finished.exit_code, 13) << finished.err;
    EXPECT_THAT(finished.err, AllOf(HasSubstr("entry 'model.weight'"),
                                    EndsWith("; 'verify 2' lists what is damaged, and --exclude leaves it out\n")));
    EXPECT_THAT(Names(), IsEmpty());
  }
  EXPECT_EQ(Export({"2", "-o", Out("m"), "--exclude", "model.weight"}).exit_code, 0) << "as it was advised";
}

TEST_F(ExportTest, SaysWhatListsTheDamageWhereTheStepCannotBeOpened) {
  store_.DamageIndex(2);
  const Finished finished = Export({"latest", "-o", Out("m")});
  EXPECT_EQ(finished.exit_code, 13);
  EXPECT_THAT(finished.err, AllOf(HasSubstr(store_.ShardPath(2)), EndsWith("; 'verify 2' lists what is damaged\n")));
}

TEST_F(ExportTest, JsonSaysWhatWasWritten) {
  const json document = RunInspectJson({"--store", store_.directory(), "--json", "export", "2", "-o", Out("m")});
  EXPECT_EQ(document.at("schema_version"), 2);
  EXPECT_EQ(document.at("step"), 2);
  EXPECT_EQ(document.at("format"), "safetensors");
  EXPECT_EQ(document.at("files"),
            json::array({{{"path", Out("m")}, {"bytes", fs::file_size(Out("m"))}, {"tensors", 3}}}));
  EXPECT_EQ(document.at("tied"), json({{"model.tied_too", "model.tied"}}));
  EXPECT_EQ(document.at("values"), json({"epoch", "rate", "ended", "text", "blob"}));
}

TEST_F(ExportTest, PatternsInBracketsAreTakenAsTheyAre) {
  for (const std::vector<std::string>& pattern : {std::vector<std::string>{"[epoch,rate]"}, {"--include", "[epoch]"}}) {
    std::vector<std::string> arguments = {"2", "-o", Out("m"), "text"};
    arguments.insert(arguments.end(), pattern.begin(), pattern.end());
    const Finished finished = Export(arguments);
    EXPECT_EQ(finished.exit_code, 1);
    EXPECT_THAT(finished.err, HasSubstr("nothing in the step matches '" + pattern.back() + "'"));
  }
}

TEST_F(ExportTest, WhatIsNoSuchStepPatternOrPlaceIsAFailure) {
  EXPECT_EQ(Export({"7", "-o", Out("m")}).exit_code, 1);
  const Finished pattern = Export({"2", "x*", "-o", Out("m")});
  EXPECT_EQ(pattern.exit_code, 1);
  EXPECT_THAT(pattern.err,
              HasSubstr("nothing in the step matches 'x*'; a GLOB must match the whole name: '*x*' matches 1\n"));
  EXPECT_EQ(Export({"2", "-o", Out("none/m")}).exit_code, 1);
  EXPECT_EQ(Export({"2", "-o", Out("none/m"), "--format", "raw"}).exit_code, 1);
  const Finished name = Export({"2", "-o", Out("m"), "--rename", "text=format"});
  EXPECT_EQ(name.exit_code, 1);
  EXPECT_THAT(name.err, HasSubstr("'format' cannot go into the file's metadata, because the name is taken; "));
  for (const char* rename : {"model.tied_too=format", "epoch=tidemark.kind.x"}) {
    const Finished taken = Export({"2", "-o", Out("m"), "--rename", rename});
    EXPECT_EQ(taken.exit_code, 1);
    EXPECT_THAT(taken.err, HasSubstr("because the name is taken; rename or exclude it"));
  }
  store_.Delete(1, "old");
  const Finished deleted = Export({"1", "-o", Out("m")});
  EXPECT_EQ(deleted.exit_code, 1);
  EXPECT_THAT(deleted.err, HasSubstr("step 1 was deleted: old"));
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(ExportTest, WrongOptionsAreUsageErrors) {
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--rename", "a"},
                                                {"--rename", "=a"},
                                                {"--shard-size", "5gb"},
                                                {"--dtype", "int8"},
                                                {"--format", "gguf"}}) {
    std::vector<std::string> arguments = {"2", "-o", Out("m")};
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    EXPECT_EQ(Export(arguments).exit_code, 2) << wrong[0] << " " << wrong[1];
  }
  EXPECT_EQ(Export({"2"}).exit_code, 2);
  EXPECT_EQ(RunInspect({"--store", store_.directory(), "--untrusted", "export", "2", "-o", Out("m")}).exit_code, 2);
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(ExportTest, OptionsThatWouldDoNothingAreUsageErrors) {
  struct Case {
    std::string out;
    std::vector<std::string> options;
    std::string error;
  };
  for (const Case& wrong :
       {Case{"m.npz", {"--shard-size", "1GB"}, "--shard-size: npz is never split"},
        {"m", {"--shard-size", "1GB", "--format", "npz"}, "--shard-size: npz is never split"},
        {"m", {"--format", "raw", "--shard-size", "1GB"}, "--shard-size: raw is never split"},
        {"m", {"--format", "raw", "--force"}, "--force: raw creates a folder and never replaces one"}}) {
    SCOPED_TRACE(testing::PrintToString(wrong.options));
    std::vector<std::string> arguments = {"2", "-o", Out(wrong.out)};
    arguments.insert(arguments.end(), wrong.options.begin(), wrong.options.end());
    const Finished finished = Export(arguments);
    EXPECT_EQ(finished.exit_code, 2);
    EXPECT_EQ(finished.err, "checkpoint-inspect: error: " + wrong.error + "; see 'checkpoint-inspect export --help'\n");
    EXPECT_THAT(Names(), IsEmpty());
  }
}

// Ends the process with 0 if a signal in the middle of the export leaves nothing.
[[noreturn]] void ExportAndInterrupt(const std::string& store, const std::string& folder, ExportFormat format) {
  CatchInterrupts();
  const auto reader = StoreReader::Open(store);
  auto step = (*reader)->OpenStep(2);
  if (!step.ok()) _exit(2);
  const auto source = MakeStepSource(*std::move(step), "step 2");
  int tensors = 0;
  const auto exported = ExportTensors(*source, {.format = format, .shard_bytes = 1000}, folder + "/m", false, {},
                                      [&](uint64_t, uint64_t) {
                                        if (++tensors == 2) std::raise(SIGINT);
                                      });
  if (!absl::IsCancelled(exported.status())) _exit(3);
  if (!fs::is_empty(folder)) _exit(4);
  _exit(tensors == 2 ? 0 : 5);
}

// So called for googletest to run it first: a process that has threads cannot be forked.
TEST(ExportDeathTest, CtrlCLeavesNothing) {
  const TestStore elsewhere;
  const std::string store = elsewhere.directory() + "/store";
  const std::string folder = elsewhere.directory() + "/out";
  fs::create_directories(folder);
  SafetensorsHeader header;
  for (uint64_t i = 0; i < 4; ++i)
    header.tensors.push_back({std::string(1 + i, 'w'), Dtype::kUint8, {600}, 600 * i, 600 * i + 600});
  const std::string file = elsewhere.directory() + "/file";
  WriteWhole(file, EncodeSafetensorsHeader(header).value() + std::string(2400, 'x'));
  ASSERT_EQ(RunInspect({"--store", store, "import", file, "--step", "2", "--create"}).exit_code, 0);
  for (const ExportFormat format : {ExportFormat::kSafetensors, ExportFormat::kNpz, ExportFormat::kRaw}) {
    EXPECT_EXIT(ExportAndInterrupt(store, folder, format), testing::ExitedWithCode(0), "");
  }
}

TEST(Export, RefusesTheNameOfAnotherFormatUnlessToldToTakeIt) {
  TestStore store;
  store.Save({1});
  const TestStore elsewhere;
  const std::string out = elsewhere.directory() + "/x.pt";
  const Finished refused = RunInspect({"--store", store.directory(), "export", "1", "-o", out});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("export writes safetensors, npz or raw, none of which has this name"));
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_EQ(RunInspect({"--store", store.directory(), "export", "1", "-o", out, "--format", "safetensors"}).exit_code,
            0);
}

}  // namespace
}  // namespace tidemark::inspect
