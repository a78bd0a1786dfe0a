// Reads JSON of strangers piece by piece: no tree is built, nothing recurses, and whatever is not expected ends it at
// once.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_STRICT_JSON_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_STRICT_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace tidemark {

// What the parser calls; what a derived class does not take, it refuses. A function that returns false has refused.
class StrictJsonHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(int64_t) override { return Unexpected("a negative number"); }
  bool number_unsigned(uint64_t) override { return Unexpected("a number"); }
  bool number_float(double, const std::string&) override { return Unexpected("a number that is not whole"); }
  bool string(std::string&) override { return Unexpected("a string"); }
  bool binary(binary_t&) override { return Unexpected("bytes"); }
  bool start_object(size_t) override { return Unexpected("an object"); }
  bool start_array(size_t) override { return Unexpected("an array"); }
  bool parse_error(size_t position, const std::string& last, const nlohmann::json::exception& error) override;

  // Why it was refused.
  const absl::Status& status() const { return status_; }

 protected:
  // Something else stands here than may; refuses it.
  virtual bool Unexpected(std::string_view found) = 0;
  // kDataLoss; returns false.
  bool Refuse(std::string_view why);

  absl::Status status_;
};

// Hands `text` to the handler: one JSON object that begins with the first byte. The process's locale does not matter.
// kDataLoss: it is not UTF-8, is no JSON or has a string of more bytes than `string_bytes_max`; else the handler's
// status.
absl::Status ParseStrictJson(std::string_view text, size_t string_bytes_max, StrictJsonHandler& handler);

// As JSON has a string, with its quotation marks.
std::string QuotedJson(std::string_view text);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_STRICT_JSON_H_
