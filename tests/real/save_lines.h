// A SaveLog as lines, from a process that may be killed to one that is not. A line is written in one piece, so there is
// all of it or nothing.

#ifndef TIDEMARK_TESTS_REAL_SAVE_LINES_H_
#define TIDEMARK_TESTS_REAL_SAVE_LINES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tests/real/save_log.h"

namespace tidemark {

// Adds the line's end. Ends the process where nobody reads any more.
void WriteLine(int descriptor, std::string_view line);

// Thread-safe.
class SaveLineWriter final : public SaveLog {
 public:
  explicit SaveLineWriter(int descriptor) : descriptor_(descriptor) {}
  void Begun(int64_t step, int64_t version, double loss) override;
  void Committed(int64_t version) override;
  void Reporting(int64_t version, double score) override;
  void Reported(int64_t version, double score) override;
  void Pinning(int64_t step) override;
  void Pinned(int64_t step, bool pinned) override;

 private:
  const int descriptor_;
};

// Tells `log` what the line says. False: it is none of SaveLineWriter's.
bool ReadSaveLine(const std::string& line, SaveLog& log);

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_REAL_SAVE_LINES_H_
