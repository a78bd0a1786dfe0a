#include "storage/records/best_modes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <utility>

#include "absl/strings/ascii.h"
#include "fmt/format.h"
#include "storage/io/printable_text.h"
#include "storage/records/json_fields.h"

namespace tidemark::storage {
namespace {

// Words whose mode is the same in every use, in order. Documented in BestModeOfName, and in docs/checkpoint-inspect.md.
constexpr std::string_view kLowerIsBetter[] = {"bpb",   "bpc", "brier",      "cer",  "divergence", "ece",  "err",
                                               "error", "fid", "kl",         "loss", "losses",     "mae",  "mape",
                                               "mse",   "nll", "perplexity", "ppl",  "regret",     "rmse", "wer"};
constexpr std::string_view kHigherIsBetter[] = {"acc",       "acc1", "acc5",    "accuracy", "auc",    "auroc",  "bleu",
                                                "correct",   "dice", "f1",      "iou",      "map",    "miou",   "ndcg",
                                                "precision", "psnr", "r2",      "recall",   "return", "reward", "rouge",
                                                "score",     "ssim", "success", "top1",     "top5"};

static_assert(std::ranges::is_sorted(kLowerIsBetter) && std::ranges::is_sorted(kHigherIsBetter));

// Longer words are none of these.
constexpr size_t kWordBytesMax = 16;

void NoteWord(std::string_view word, std::optional<BestMode>* mode) {
  std::array<char, kWordBytesMax> bytes = {};
  if (word.size() > bytes.size()) return;
  std::transform(word.begin(), word.end(), bytes.begin(),
                 [](char c) { return absl::ascii_tolower(static_cast<unsigned char>(c)); });
  const std::string_view lower(bytes.data(), word.size());
  if (std::ranges::binary_search(kLowerIsBetter, lower)) *mode = BestMode::kLowest;
  if (std::ranges::binary_search(kHigherIsBetter, lower)) *mode = BestMode::kHighest;
}

// "valLoss", "val_loss" and "val-loss" have the words "val" and "loss". Each run of letters and digits is a word as
// well, behind its parts: "mIoU" has the parts "m", "io" and "u", and is "miou". The last word that has a mode gives
// it. Takes no memory, since no status can say that there is none.
std::optional<BestMode> ModeOfWords(std::string_view text) {
  std::optional<BestMode> mode;
  while (!text.empty()) {
    size_t end = 0;
    while (end < text.size() && absl::ascii_isalnum(static_cast<unsigned char>(text[end]))) ++end;
    const std::string_view run = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    size_t begin = 0;
    for (size_t i = 1; i < run.size(); ++i) {
      const auto before = static_cast<unsigned char>(run[i - 1]);
      if (!absl::ascii_islower(before) || !absl::ascii_isupper(static_cast<unsigned char>(run[i]))) continue;
      NoteWord(run.substr(begin, i - begin), &mode);
      begin = i;
    }
    if (begin > 0) NoteWord(run.substr(begin), &mode);
    NoteWord(run, &mode);
  }
  return mode;
}

BestMode DecodeMode(const std::string& name) {
  if (name == "lowest") return BestMode::kLowest;
  if (name == "highest") return BestMode::kHighest;
  throw std::invalid_argument("a mode is neither lowest nor highest");
}

}  // namespace

std::string EncodeBestModes(const BestModes& modes) {
  ScopedJson json(Json::object());
  for (const auto& [metric, mode] : modes) (*json)[metric] = BestModeName(mode);
  return DumpJson(JsonObject("version", kBestModesVersion, "metrics", std::move(json)));
}

absl::StatusOr<BestModes> DecodeBestModes(std::string_view bytes) {
  const auto decode = [](const Json& json) {
    BestModes modes;
    if (!json.at("metrics").is_object()) throw std::invalid_argument("metrics are not an object");
    for (const auto& [metric, mode] : json.at("metrics").items()) {
      modes.emplace(metric, DecodeMode(mode.get<std::string>()));
    }
    return modes;
  };
  return DecodeJson<BestModes>("best record", bytes, kBestModesVersion, decode);
}

std::optional<BestMode> FindBestMode(const BestModes& recorded, std::string_view metric) {
  const auto found = recorded.find(metric);
  return found == recorded.end() ? BestModeOfName(metric) : found->second;
}

absl::StatusOr<BestMode> RequireBestMode(const BestModes& recorded, std::string_view metric) {
  if (const std::optional<BestMode> mode = FindBestMode(recorded, metric)) return *mode;
  return absl::InvalidArgumentError(
      fmt::format("whether lower or higher '{}' is better is not recorded, and its name does not tell; give a BestMode",
                  PrintableText(metric)));
}

}  // namespace tidemark::storage

namespace tidemark {

std::string_view BestModeName(BestMode mode) { return mode == BestMode::kLowest ? "lowest" : "highest"; }

std::optional<BestMode> BestModeOfName(std::string_view metric) {
  return storage::ModeOfWords(metric.substr(metric.find_last_of("./") + 1));
}

}  // namespace tidemark
