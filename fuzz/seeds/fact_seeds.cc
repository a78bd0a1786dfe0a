#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/seeds/seed_lists.h"
#include "storage/bytes/byte_writer.h"
#include "storage/records/fact.h"

namespace tidemark::fuzz {

std::map<std::string, std::string> FactSeeds() {
  std::map<std::string, std::string> seeds;
  const std::string attempt(32, 'a');
  const Evaluation evaluation{
      .evaluator = "validation", .worker = "pid 7 on node-3", .metrics = {{"accuracy", 0.5}, {"loss", 1.25}}};
  storage::StepRecord step;
  step.info = {.step = 10, .attempt = attempt, .sequence = 1, .metrics = {{"loss", 2}}, .evaluations = {evaluation}};
  step.info.pinned = true;
  step.info.tags = {"best", "v1"};
  step.shards.Add(0, 100, {});
  step.references = {{.step = 5, .attempt = {{5}}, .world_size = 1}};
  storage::StepRecord next = step;
  next.info.attempt = std::string(32, 'b');
  storage::PhasesRecord phases{.step = 10, .attempt = attempt};
  phases.phases = {{.name = "write", .lane = "persister", .duration = absl::Milliseconds(3), .bytes = 100}};
  const std::string id(32, 'c');
  const std::vector<std::pair<std::string, storage::Fact>> facts = {
      {"step", storage::StepFact{step}},
      {"state", storage::StateFact{10, attempt, StepState::kDamaged, "chunk 3"}},
      {"evaluation", storage::EvaluationFact{10, attempt, evaluation}},
      {"pin", storage::PinFact{10, attempt, true, "paper", {"a", "b"}}},
      {"kept", storage::KeptFact{10, attempt, "latest"}},
      {"phases", storage::PhasesFact{phases}},
      {"best_modes", storage::BestModesFact{{{"loss", BestMode::kLowest}}}},
      {"deletion_request", storage::DeletionRequestFact{id, 10, attempt, "bad data", "pid 8", absl::UnixEpoch()}},
      {"answer", storage::AnswerFact{id, "it is pinned"}},
      {"store", storage::StoreFact{{{7}}}},
      {"next_attempt", storage::StepFact{next}},
  };
  std::string all;
  for (const auto& [name, fact] : facts) {
    const std::string bytes = EncodeFact(fact).value();
    storage::ByteWriter out;
    out.Put<uint16_t>(static_cast<uint16_t>(bytes.size()));
    out.PutText(bytes);
    seeds["fact/" + name] = std::string(out.view());
    all += out.view();
  }
  seeds["fact/all"] = all;
  // The first one as version 1 has it: a list of one shard in the place of 16 bytes.
  std::string old = EncodeFact(facts.front().second).value();
  constexpr size_t kReferencesBytes = 4 + 32, kDigestBytes = 16;
  storage::ByteWriter shards;
  shards.Put<uint32_t>(1);
  shards.Put<uint32_t>(0);
  shards.Put<uint64_t>(100);
  shards.PutBytes16({});
  old[1] = 1;
  old.replace(old.size() - kReferencesBytes - kDigestBytes, kDigestBytes, shards.view());
  storage::ByteWriter out;
  out.Put<uint16_t>(static_cast<uint16_t>(old.size()));
  out.PutText(old);
  seeds["fact/step_of_version_1"] = std::string(out.view());
  return seeds;
}

}  // namespace tidemark::fuzz
