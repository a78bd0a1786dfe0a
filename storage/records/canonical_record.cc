#include "storage/records/canonical_record.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/charconv.h"
#include "storage/records/tag.h"

namespace tidemark::storage {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// How long the JSON number is with which a text begins; 0 where there is none, or where it has neither a
// fraction nor an exponent: that may be an integer to a parser, whose -0 has no sign.
size_t FloatSize(std::string_view text) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t begin = i;
    while (i < text.size() && IsDigit(text[i])) ++i;
    return i > begin;
  };
  if (i < text.size() && text[i] == '-') ++i;
  const size_t whole = i;
  if (!digits() || (text[whole] == '0' && i > whole + 1)) return 0;
  bool is_float = false;
  if (i < text.size() && text[i] == '.') {
    ++i;
    is_float = true;
    if (!digits()) return 0;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    is_float = true;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (!digits()) return 0;
  }
  return is_float ? i : 0;
}

// Takes one token after the other off the front of a text. After the first that is not what was asked for, all that
// follow are empty, and done() is false.
class TokenReader {
 public:
  explicit TokenReader(std::string_view text) : rest_(text) {}

  bool done() const { return ok_ && rest_.empty(); }
  bool ok() const { return ok_; }
  void Fail() { ok_ = false; }

  bool TakeIf(char c) {
    if (!ok_ || rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool TakeIf(std::string_view text) {
    if (!ok_ || !rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  void Expect(std::string_view text) { ok_ = TakeIf(text); }

  // Between brackets, `read` for each element.
  template <typename Read>
  void Array(char open, char close, const Read& read) {
    if (!TakeIf(open)) return Fail();
    if (TakeIf(close)) return;
    do {
      read();
    } while (TakeIf(','));
    if (!TakeIf(close)) Fail();
  }

  std::string String() {
    std::string text;
    if (!TakeIf('"')) Fail();
    while (ok_) {
      size_t plain = 0;
      while (plain < rest_.size() && IsPlain(rest_[plain])) ++plain;
      text.append(rest_.substr(0, plain));
      rest_.remove_prefix(plain);
      if (TakeIf('"')) return text;
      if (!TakeIf('\\') || rest_.empty()) break;
      const size_t escape = kEscapes.find(rest_.front());
      if (escape == std::string_view::npos) break;
      text.push_back(kEscaped[escape]);
      rest_.remove_prefix(1);
    }
    Fail();
    return "";
  }

  template <typename T>
  T Integer() {
    T value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) Fail();
    if (!ok_) return 0;
    const std::string_view text(rest_.data(), end);
    const std::string_view digits = text.substr(text.front() == '-' ? 1 : 0);
    if (digits.size() > 1 && digits.front() == '0') Fail();
    rest_.remove_prefix(text.size());
    return value;
  }

  int64_t Step() {
    const auto step = Integer<int64_t>();
    if (step < 0) Fail();
    return step;
  }

  double Number() {
    if (!rest_.empty() && rest_.front() == '"') {
      const std::string text = String();
      if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
      if (text == "Infinity") return std::numeric_limits<double>::infinity();
      if (text != "-Infinity") Fail();
      return -std::numeric_limits<double>::infinity();
    }
    const std::string_view text = rest_.substr(0, FloatSize(rest_));
    double value = 0;
    if (text.empty()) Fail();
    if (!ok_) return 0;
    const auto [end, error] = absl::from_chars(text.data(), text.data() + text.size(), value);
    ok_ = error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
    rest_.remove_prefix(text.size());
    return value;
  }

  bool Bool() {
    if (rest_.starts_with("true")) {
      Expect("true");
      return true;
    }
    Expect("false");
    return false;
  }

  template <typename Id>
  Id TakeId() {
    const auto bytes = FromHex(String());
    if (!bytes) Fail();
    return bytes ? Id{*bytes} : Id{};
  }

  // The one of these that `name_of` calls by what is read.
  template <typename Enum, size_t kCount>
  Enum OneOf(const Enum (&values)[kCount], std::string_view (*name_of)(Enum)) {
    const std::string name = String();
    for (const Enum value : values) {
      if (name == name_of(value)) return value;
    }
    Fail();
    return values[0];
  }

 private:
  static constexpr std::string_view kEscapes = R"("\/bfnrt)";
  static constexpr std::string_view kEscaped = "\"\\/\b\f\n\r\t";

  // What stands for itself within a string. Bytes beyond ASCII do too, but somebody has to see whether they are UTF-8.
  static bool IsPlain(char c) { return c >= 0x20 && static_cast<unsigned char>(c) < 0x80 && c != '"' && c != '\\'; }

  std::string_view rest_;
  bool ok_ = true;
};

Metrics ReadMetrics(TokenReader& in) {
  Metrics metrics;
  in.Array('{', '}', [&] {
    std::string name = in.String();
    in.Expect(":");
    const double value = in.Number();
    const size_t before = metrics.size();
    metrics.emplace_hint(metrics.end(), std::move(name), value);
    if (metrics.size() == before) in.Fail();  // the name stands there twice
  });
  return metrics;
}

Evaluation ReadEvaluation(TokenReader& in) {
  using enum Evaluation::Outcome;
  Evaluation row;
  in.Expect(R"({"evaluator":)");
  row.evaluator = in.String();
  in.Expect(R"(,"metrics":)");
  row.metrics = ReadMetrics(in);
  in.Expect(R"(,"outcome":)");
  row.outcome = in.OneOf({kDone, kSkipped, kFailed}, OutcomeName);
  in.Expect(R"(,"reason":)");
  row.reason = in.String();
  in.Expect(R"(,"reported_unix_ns":)");
  row.reported = absl::FromUnixNanos(in.Integer<int64_t>());
  in.Expect(R"(,"took_ns":)");
  row.took = absl::Nanoseconds(in.Integer<int64_t>());
  if (row.took < absl::ZeroDuration()) in.Fail();
  in.Expect(R"(,"unhealthy":)");
  row.unhealthy = in.String();
  in.Expect(R"(,"worker":)");
  row.worker = in.String();
  in.Expect("}");
  return row;
}

FileReference ReadReference(TokenReader& in) {
  FileReference file;
  in.Expect(R"({"attempt":)");
  file.attempt = in.TakeId<AttemptId>();
  in.Expect(R"(,"rank":)");
  file.rank = in.Integer<uint32_t>();
  in.Expect(R"(,"step":)");
  file.step = in.Step();
  in.Expect(R"(,"world_size":)");
  file.world_size = in.Integer<uint32_t>();
  in.Expect("}");
  return file;
}

RecordedShard ReadShard(TokenReader& in) {
  RecordedShard shard;
  in.Expect(R"({"file_bytes":)");
  shard.file_bytes = in.Integer<uint64_t>();
  in.Expect(R"(,"index_digest":)");
  shard.index_digest = in.TakeId<Digest128>();
  in.Expect(R"(,"rank":)");
  shard.rank = in.Integer<uint32_t>();
  in.Expect("}");
  return shard;
}

void ReadFirstHalf(TokenReader& in, StepInfo& info) {
  in.Expect(R"({"attempt":)");
  info.attempt = in.String();
  in.Expect(R"(,"blocked_ns":)");
  info.blocked = absl::Nanoseconds(in.Integer<int64_t>());
  in.Expect(R"(,"created_unix_ns":)");
  info.created = absl::FromUnixNanos(in.Integer<int64_t>());
  in.Expect(R"(,"entry_count":)");
  info.entry_count = in.Integer<uint64_t>();
  in.Expect(R"(,"evaluations":)");
  in.Array('[', ']', [&] { info.evaluations.push_back(ReadEvaluation(in)); });
  in.Expect(R"(,"kept":)");
  info.kept = in.String();
  in.Expect(R"(,"logical_bytes":)");
  info.logical_bytes = in.Integer<uint64_t>();
  in.Expect(R"(,"metrics":)");
  info.metrics = ReadMetrics(in);
  in.Expect(R"(,"pin_note":)");
  info.pin_note = in.String();
  in.Expect(R"(,"pinned":)");
  info.pinned = in.Bool();
  in.Expect(R"(,"reason":)");
  info.reason = in.String();
}

void ReadSecondHalf(TokenReader& in, StepRecord& record) {
  using enum StepState;
  StepInfo& info = record.info;
  in.Expect(R"(,"references":)");
  in.Array('[', ']', [&] { record.references.push_back(ReadReference(in)); });
  in.Expect(R"(,"reused_bytes":)");
  info.reused_bytes = in.Integer<uint64_t>();
  in.Expect(R"(,"sequence":)");
  info.sequence = in.Integer<uint64_t>();
  in.Expect(R"(,"shards":)");
  in.Array('[', ']', [&] { record.shards.push_back(ReadShard(in)); });
  in.Expect(R"(,"state":)");
  info.state = in.OneOf({kCommitted, kDamaged, kLost, kFailed, kDeleted, kUnsaved}, StepStateName);
  in.Expect(R"(,"step":)");
  info.step = in.Step();
  in.Expect(R"(,"stored_bytes":)");
  info.stored_bytes = in.Integer<uint64_t>();
  if (in.TakeIf(R"(,"tags":)")) {
    in.Array('[', ']', [&] { info.tags.push_back(in.String()); });
    // What is wrong with them is for the parser to say.
    if (!CheckTags(info.tags).ok() || !info.pinned) in.Fail();
  }
  in.Expect(R"(,"user_metadata":)");
  info.user_metadata = in.String();
  in.Expect(R"(,"version":2,"world_size":)");
  info.world_size = in.Integer<uint32_t>();
  in.Expect("}");
}

}  // namespace

std::optional<StepRecord> ReadCanonicalStepRecord(std::string_view bytes) {
  static_assert(kStepRecordVersion == 2, "the fields that are read are those of version 2");
  TokenReader in(bytes);
  StepRecord record;
  ReadFirstHalf(in, record.info);
  ReadSecondHalf(in, record);
  // A record without a valid attempt, as a save leaves it that failed, is for the parser to judge.
  if (!in.done() || !FromHex(record.info.attempt)) return std::nullopt;
  return record;
}

}  // namespace tidemark::storage
