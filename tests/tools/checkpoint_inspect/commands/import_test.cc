#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>

#include "gmock/gmock.h"
#include "snapshot/exchange/safetensors_header.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tidemark/store_reader.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/commands/commands.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class ImportTest : public testing::Test {
 protected:
  ImportTest() {
    fs::create_directories(folder_);
    WriteFile("a", {{"w", Dtype::kFloat32, {2, 3}, 0, 24}, {"b", Dtype::kBfloat16, {3}, 24, 30}}, Bytes(30));
  }

  static std::string Bytes(size_t count) {
    std::string bytes;
    for (size_t i = 0; i < count; ++i) bytes += static_cast<char>(i * 37 + 11);
    return bytes;
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  void WriteFile(const std::string& name, std::vector<SafetensorsTensor> tensors, std::string_view data,
                 std::map<std::string, std::string> metadata = {}) const {
    const SafetensorsHeader header{.tensors = std::move(tensors), .metadata = std::move(metadata)};
    WriteWhole(Path(name), EncodeSafetensorsHeader(header).value() + std::string(data));
  }

  Finished Import(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--store", store_.directory() + "/store", "import"});
    return RunInspect(arguments);
  }

  std::string Stored(int64_t step, const std::string& name) const {
    const auto reader = StoreReader::Open(store_.directory() + "/store");
    EXPECT_TRUE(reader.ok()) << reader.status();
    const auto bytes = (*reader)->ReadEntry(step, name);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
  }

  const TestStore store_;  // a folder that is removed afterwards
  const std::string folder_ = store_.directory() + "/files";
};

TEST_F(ImportTest, TensorsBecomeACommittedStepBitByBit) {
  const Finished finished = Import({Path("a"), "--step", "5", "--create", "--metric", "loss=0.1", "--metric", "x=y=nan",
                                    "--metadata", R"({"run": 7})"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_EQ(finished.err, "");
  EXPECT_THAT(finished.out, HasSubstr("step 5: 2 entries, 30 B"));
  EXPECT_EQ(Stored(5, "w"), Bytes(30).substr(0, 24));
  EXPECT_EQ(Stored(5, "b"), Bytes(30).substr(24));
  const json shown = RunInspectJson({"--store", store_.directory() + "/store", "--json", "show", "5"});
  EXPECT_EQ(shown.at("step").at("state"), "committed");
  EXPECT_EQ(shown.at("step").at("metrics"), json({{"loss", 0.1}, {"x=y", "NaN"}}));
  EXPECT_EQ(shown.at("step").at("user_metadata"), json({{"run", 7}}));
  EXPECT_EQ(shown.at("properties").at("staging"), "imported");
  EXPECT_EQ(shown.at("entries").at(0).at("dtype"), "float32");
  EXPECT_EQ(RunInspect({"--store", store_.directory() + "/store", "verify"}).exit_code, 0);
}

TEST_F(ImportTest, SeveralFilesBecomeOneStep) {
  WriteFile("c", {{"c", Dtype::kUint8, {0}, 0, 0}}, "");
  const json document = RunInspectJson(
      {"--store", store_.directory() + "/store", "--json", "import", Path("a"), Path("c"), "--step", "0", "--create"});
  EXPECT_EQ(document.at("schema_version"), 2);
  EXPECT_EQ(document.at("step").at("entries"), 3);
  EXPECT_EQ(document.at("step").at("user_metadata"), json({{"imported_from", {"a", "c"}}}));
  EXPECT_EQ(document.at("store").at("id").get<std::string>().size(), 32u);
  const Finished twice = Import({Path("a"), Path("a"), "--step", "1"});
  EXPECT_EQ(twice.exit_code, 1);
  EXPECT_THAT(twice.err, HasSubstr("'w' is in " + Path("a") + " and in " + Path("a")));
}

// Kind, dtype, shape and tie by name.
json Structure(const json& shown) {
  json structure;
  for (const json& entry : shown.at("entries")) {
    structure[entry.at("name").get<std::string>()] = {entry.at("kind"), entry.at("dtype"), entry.at("shape"),
                                                      entry.at("tied_to")};
  }
  return structure;
}

TEST_F(ImportTest, WhatExportWroteComesBack) {
  const TestStore trained;
  trained.Save({2}, {.metrics = {{"loss", 0.1}, {"other", std::numeric_limits<double>::quiet_NaN()}},
                     .user_metadata = R"({"run": 7, "list": [1, null]})"});
  const json before = RunInspectJson({"--store", trained.directory(), "show", "2"});
  const auto reader = StoreReader::Open(trained.directory());
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (const char* shard_size : {"5GB", "20100"}) {
    const std::string out = Path(std::string("m") + shard_size);
    ASSERT_EQ(
        RunInspect({"--store", trained.directory(), "export", "2", "-o", out, "--shard-size", shard_size}).exit_code,
        0);
    const bool is_one = fs::exists(out);
    EXPECT_EQ(is_one, std::string_view(shard_size) == "5GB");
    const std::string step = is_one ? "5" : "6";
    const Finished finished = Import({is_one ? out : out + ".safetensors.index.json", "--step", step, "--create"});
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    const json after = RunInspectJson({"--store", store_.directory() + "/store", "show", step});
    EXPECT_EQ(Structure(after), Structure(before));
    EXPECT_EQ(after.at("step").at("user_metadata"), before.at("step").at("user_metadata"));
    EXPECT_EQ(after.at("step").at("metrics"), before.at("step").at("metrics"));
    for (const json& entry : before.at("entries")) {
      const std::string name = entry.at("name");
      const auto bytes = (*reader)->ReadEntry(2, name);
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      EXPECT_EQ(Stored(std::stoi(step), name), std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size()))
          << name;
    }
  }
  EXPECT_EQ(RunInspect({"--store", store_.directory() + "/store", "verify"}).exit_code, 0);
}

TEST_F(ImportTest, AFileInBracketsIsOneFile) {
  fs::rename(Path("a"), Path("[a,b]"));
  const Finished finished =
      RunInspect({"--store", "store", "import", "[a,b]", "--step", "5", "--create"}, {.directory = folder_});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("step 5: 2 entries, 30 B"));
}

TEST_F(ImportTest, StringsOfTheFilesBecomeUserMetadata) {
  WriteFile("c", {{"c", Dtype::kUint8, {0}, 0, 0}}, "",
            {{"format", "pt"}, {"author", "x"}, {"imported_from", "elsewhere"}});
  WriteFile("d", {{"d", Dtype::kUint8, {0}, 0, 0}}, "", {{"format", "pt"}});
  ASSERT_EQ(Import({Path("c"), Path("d"), "--step", "5", "--create"}).exit_code, 0);
  const json shown = RunInspectJson({"--store", store_.directory() + "/store", "show", "5"});
  EXPECT_EQ(
      shown.at("step").at("user_metadata"),
      json({{"imported_from", {"c", "d"}}, {"file.imported_from", "elsewhere"}, {"format", "pt"}, {"author", "x"}}));
}

TEST_F(ImportTest, FilesThatContradictEachOtherNeedMetadata) {
  WriteFile("c", {{"c", Dtype::kUint8, {0}, 0, 0}}, "", {{"author", "x"}});
  WriteFile("d", {{"d", Dtype::kUint8, {0}, 0, 0}}, "", {{"author", "y"}});
  const Finished refused = Import({Path("c"), Path("d"), "--step", "5", "--create"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("'author' of the metadata differs between " + Path("c") + " and " + Path("d")));
  EXPECT_FALSE(fs::exists(store_.directory() + "/store"));
  EXPECT_EQ(Import({Path("c"), Path("d"), "--step", "5", "--create", "--metadata", "{}"}).exit_code, 0);
}

TEST_F(ImportTest, VeryManyStringsNeedMetadata) {
  std::map<std::string, std::string> strings;
  for (int i = 0; i < 40'000; ++i) strings[std::to_string(i)] = "";
  WriteFile("c", {{"c", Dtype::kUint8, {0}, 0, 0}}, "", strings);
  const Finished refused = Import({Path("c"), "--step", "5", "--create"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("the metadata of " + Path("c") + " and the files before it has more keys than " +
                                     "the 8192 of a step's user metadata; --metadata replaces it"));
  EXPECT_FALSE(fs::exists(store_.directory() + "/store"));
  EXPECT_EQ(Import({Path("c"), "--step", "5", "--create", "--metadata", "{}"}).exit_code, 0);
}

TEST_F(ImportTest, ValuesAndTiesOfAHostileExportAreRefused) {
  const std::map<std::string, std::string> ours = {{"tidemark.step", "1"}, {"tidemark.store", ""}};
  const auto refusal = [&](std::map<std::string, std::string> metadata) {
    metadata.insert(ours.begin(), ours.end());
    WriteFile("bad", {{"w", Dtype::kUint8, {1}, 0, 1}}, "x", metadata);
    const Finished finished = Import({Path("bad"), "--step", "5", "--create"});
    EXPECT_EQ(finished.exit_code, 1);
    return finished.err;
  };
  EXPECT_THAT(refusal({{"t", "none"}, {"tidemark.kind.t", "tied"}}),
              HasSubstr(Path("bad") + ": 't' is tied to 'none', which is not a tensor in the files"));
  EXPECT_THAT(refusal({{"t", "v"}, {"tidemark.kind.t", "tied"}, {"v", "1"}, {"tidemark.kind.v", "int64"}}),
              HasSubstr("'t' is tied to 'v', which is not a tensor in the files"));
  EXPECT_THAT(refusal({{"w", "w"}, {"tidemark.kind.w", "tied"}}),
              HasSubstr("'w' is in " + Path("bad") + " and in " + Path("bad")));
  EXPECT_THAT(refusal({{"w", "1"}, {"tidemark.kind.w", "int64"}}),
              HasSubstr("'w' is in " + Path("bad") + " and in the metadata of " + Path("bad")));
  const std::string name(4097, 'n');
  EXPECT_THAT(refusal({{name, "1"}, {"tidemark.kind." + name, "int64"}}),
              HasSubstr("its name has 4097 bytes, more than 4096"));
  EXPECT_THAT(refusal({{name, "w"}, {"tidemark.kind." + name, "tied"}}),
              HasSubstr("its name has 4097 bytes, more than 4096"));
  EXPECT_THAT(refusal({{"v", "x"}, {"tidemark.kind.v", "int64"}}),
              HasSubstr("'v' of the metadata is not a valid int64"));
  EXPECT_FALSE(fs::exists(store_.directory() + "/store"));
}

TEST_F(ImportTest, AStoreIsOnlyMadeWhereThatIsAskedFor) {
  const Finished refused = Import({Path("a"), "--step", "5"});
  EXPECT_EQ(refused.exit_code, 10);
  EXPECT_THAT(refused.err, HasSubstr("--create creates one"));
  EXPECT_FALSE(fs::exists(store_.directory() + "/store"));
}

TEST_F(ImportTest, NoStoreIsMadeInAFolderOfSomethingElse) {
  fs::create_directories(store_.directory() + "/store");
  WriteWhole(store_.directory() + "/store/notes.txt", "mine");
  const Finished refused = Import({Path("a"), "--step", "5", "--create"});
  EXPECT_EQ(refused.exit_code, 10);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("is not a Tidemark store"), HasSubstr("notes.txt")));
}

TEST_F(ImportTest, AStepThatIsThereStays) {
  ASSERT_EQ(Import({Path("a"), "--step", "5", "--create"}).exit_code, 0);
  WriteFile("other", {{"w", Dtype::kUint8, {1}, 0, 1}}, "x");
  const Finished refused = Import({Path("other"), "--step", "5"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("already has a step 5, which is committed"));
  EXPECT_EQ(Stored(5, "w").size(), 24u);
}

TEST_F(ImportTest, AStoreThatATrainerHoldsIsLeftAlone) {
  const TestStore trained;
  const auto trainer = trained.OpenCheckpointer();
  const Finished refused = RunInspect({"--store", trained.directory(), "import", Path("a"), "--step", "5"});
  EXPECT_EQ(refused.exit_code, 11);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("is open for writing elsewhere"), HasSubstr("\"pid\":")));
}

TEST_F(ImportTest, AFileThatIsNoneIsRefusedBeforeTheStoreIsTouched) {
  WriteWhole(Path("bad"), "no such file");
  const Finished refused = Import({Path("a"), Path("bad"), "--step", "5", "--create"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr(Path("bad")), HasSubstr("length of the header at byte 0")));
  WriteFile("named", {{std::string(4097, 'n'), Dtype::kUint8, {1}, 0, 1}}, "x");
  const Finished named = Import({Path("named"), "--step", "5", "--create"});
  EXPECT_EQ(named.exit_code, 1);
  EXPECT_THAT(named.err, HasSubstr("its name has 4097 bytes, more than 4096"));
  EXPECT_FALSE(fs::exists(store_.directory() + "/store"));
}

// Ends the process with what an import returns that was interrupted before its first chunk.
[[noreturn]] void ImportAndInterrupt(const std::string& store, const std::string& file) {
  CatchInterrupts();
  std::raise(SIGINT);
  Console console(stdout, stderr);
  CommandLine line;
  AddImport(line);
  const char* arguments[] = {"checkpoint-inspect", "--store", store.c_str(), "import", file.c_str(), "--step", "5"};
  _exit(static_cast<int>(line.Run(console, static_cast<int>(std::size(arguments)), arguments)));
}

// So called for googletest to run it first: a process that has threads cannot be forked.
using ImportDeathTest = ImportTest;
TEST_F(ImportDeathTest, CtrlCLeavesNoStepAndAStoreInOrder) {
  ASSERT_EQ(Import({Path("a"), "--step", "4", "--create"}).exit_code, 0);
  const std::string store = store_.directory() + "/store";
  EXPECT_EXIT(ImportAndInterrupt(store, Path("a")), testing::ExitedWithCode(130), "no step was imported");
  const json steps = RunInspectJson({"--store", store, "--json", "ls"}).at("steps");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps.at(1).at("state"), "failed");
  EXPECT_EQ(std::distance(fs::directory_iterator(store + "/steps"), fs::directory_iterator()), 1);
  EXPECT_EQ(RunInspect({"--store", store, "repair"}).exit_code, 0);
  EXPECT_EQ(Import({Path("a"), "--step", "5"}).exit_code, 0);
}

TEST_F(ImportTest, WrongOptionsAreUsageErrors) {
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--step", "x"},
                                                {"--step", "-1"},
                                                {"--step", "1", "--metric", "loss"},
                                                {"--step", "1", "--metric", "=1"},
                                                {"--step", "1", "--metric", "loss=low"},
                                                {"--step", "1", "--metadata", "[1]"},
                                                {"--step", "1", "--metadata", "{"},
                                                {}}) {
    std::vector<std::string> arguments = {Path("a"), "--create"};
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    EXPECT_EQ(Import(arguments).exit_code, 2) << testing::PrintToString(wrong);
  }
  EXPECT_EQ(Import({"--step", "1"}).exit_code, 2);
  EXPECT_FALSE(fs::exists(store_.directory() + "/store"));
}

}  // namespace
}  // namespace tidemark::inspect
