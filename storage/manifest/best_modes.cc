#include "storage/manifest/best_modes.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "absl/strings/ascii.h"
#include "fmt/format.h"
#include "storage/io/printable_text.h"
#include "storage/manifest/json_fields.h"

namespace tidemark::storage {
namespace {

// Words whose mode is the same in every use. Documented in BestModeOfName, and in docs/checkpoint-inspect.md.
const std::set<std::string_view>& LowerIsBetter() {
  static const std::set<std::string_view> words = {"bpb", "bpc", "brier",      "cer",  "ece",    "err",  "error",
                                                   "fid", "kl",  "divergence", "loss", "losses", "mae",  "mape",
                                                   "mse", "nll", "perplexity", "ppl",  "regret", "rmse", "wer"};
  return words;
}

const std::set<std::string_view>& HigherIsBetter() {
  static const std::set<std::string_view> words = {
      "acc",    "acc1",   "acc5",  "accuracy", "auc",  "auroc",     "bleu", "correct", "dice",
      "f1",     "iou",    "map",   "miou",     "ndcg", "precision", "psnr", "r2",      "recall",
      "return", "reward", "rouge", "score",    "ssim", "success",   "top1", "top5"};
  return words;
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  absl::AsciiStrToLower(&lower);
  return lower;
}

// "valLoss", "val_loss" and "val-loss" have the words "val" and "loss". Each run of letters and digits is a word as
// well, behind its parts: "mIoU" has the parts "m", "io" and "u", and is "miou".
std::vector<std::string> WordsOf(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    size_t end = 0;
    while (end < text.size() && absl::ascii_isalnum(static_cast<unsigned char>(text[end]))) ++end;
    const std::string_view run = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    size_t begin = 0;
    for (size_t i = 1; i < run.size(); ++i) {
      const auto before = static_cast<unsigned char>(run[i - 1]);
      if (!absl::ascii_islower(before) || !absl::ascii_isupper(static_cast<unsigned char>(run[i]))) continue;
      words.push_back(Lower(run.substr(begin, i - begin)));
      begin = i;
    }
    if (begin > 0) words.push_back(Lower(run.substr(begin)));
    words.push_back(Lower(run));
  }
  return words;
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
  const auto parse = [](std::string_view text) { return ParseJson(text); };
  const auto decode = [](const Json& json) {
    BestModes modes;
    if (!json.at("metrics").is_object()) throw std::invalid_argument("metrics are not an object");
    for (const auto& [metric, mode] : json.at("metrics").items()) {
      modes.emplace(metric, DecodeMode(mode.get<std::string>()));
    }
    return modes;
  };
  return DecodeJson<BestModes>("best record", bytes, kBestModesVersion, parse, decode);
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
  std::optional<BestMode> mode;
  for (const std::string& word : storage::WordsOf(metric.substr(metric.find_last_of("./") + 1))) {
    if (storage::LowerIsBetter().contains(word)) mode = BestMode::kLowest;
    if (storage::HigherIsBetter().contains(word)) mode = BestMode::kHighest;
  }
  return mode;
}

}  // namespace tidemark
