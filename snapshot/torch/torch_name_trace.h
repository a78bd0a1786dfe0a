// NameTrace: the way that a walk over named things took, so that the next walk can tell that it goes the same way
// without building a single name: it compares the parts, a few bytes each, as it comes by them.
//
// Thread-compatible.

#ifndef TIDEMARK_SNAPSHOT_TORCH_TORCH_NAME_TRACE_H_
#define TIDEMARK_SNAPSHOT_TORCH_TORCH_NAME_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark {

class NameTrace {
 public:
  // A new walk, at the root. It follows the last one until it takes another way; from there on it is recorded anew.
  void Begin();

  // Down to a part of what the walk is at, and back up.
  void Push(std::string_view part) {
    if (!Follow(static_cast<uint32_t>(part.size()), part)) Record(static_cast<uint32_t>(part.size()), part);
  }
  void Pop() {
    if (!Follow(kPop, {})) Record(kPop, {});
  }

  // Notes that the walk counts something here. True if it has gone the same way, counting at the same places, as the
  // last one: what is counted here then has the name that it had.
  bool Count() {
    if (Follow(kCount, {})) return true;
    Record(kCount, {});
    return false;
  }

  // Whether the whole walk so far was the same as the last one's beginning.
  bool following() const { return following_; }

  // Ends the walk. True if it was the same as the last one, to the end.
  bool End();

  // The name of where the walk is: the parts that are not empty, joined by dots. While following() it is put together
  // from the beginning of the trace.
  std::string Name() const;

  // The same as Name() == name.
  bool IsAt(std::string_view name) const { return following_ ? Name() == name : path_.name == name; }

  void Clear();

 private:
  // A step is its length, or one of these, followed by the bytes of the part.
  static constexpr uint32_t kPop = 0xffffffff;
  static constexpr uint32_t kCount = 0xfffffffe;

  bool Follow(uint32_t step, std::string_view part) {
    if (!following_ || steps_.size() - cursor_ < sizeof(step) + part.size()) return false;
    const char* known = steps_.data() + cursor_;
    if (std::memcmp(known, &step, sizeof(step)) != 0) return false;
    if (!part.empty() && std::memcmp(known + sizeof(step), part.data(), part.size()) != 0) return false;
    cursor_ += sizeof(step) + part.size();
    return true;
  }
  void Record(uint32_t step, std::string_view part);

  // A name being built.
  struct Path {
    std::string name;
    std::vector<size_t> lengths;  // of the name, before each part
    void Take(uint32_t step, std::string_view part);
  };
  Path PathAtCursor() const;

  std::string steps_;
  size_t cursor_ = 0;  // end of what this walk has followed or recorded
  bool following_ = true;
  Path path_;  // where the walk is, unless following_
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_NAME_TRACE_H_
