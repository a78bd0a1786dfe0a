#include "snapshot/torch/torch_name_trace.h"

#include <utility>

namespace tidemark {

void NameTrace::Path::Take(uint32_t step, std::string_view part) {
  if (step == kCount) return;
  if (step == kPop) {
    name.resize(lengths.back());
    lengths.pop_back();
    return;
  }
  lengths.push_back(name.size());
  if (part.empty()) return;
  if (!name.empty()) name.push_back('.');
  name.append(part);
}

NameTrace::Path NameTrace::PathAtCursor() const {
  Path path;
  for (size_t at = 0; at < cursor_;) {
    uint32_t step;
    std::memcpy(&step, steps_.data() + at, sizeof(step));
    at += sizeof(step);
    const size_t length = step == kPop || step == kCount ? 0 : step;
    path.Take(step, {steps_.data() + at, length});
    at += length;
  }
  return path;
}

void NameTrace::Begin() {
  cursor_ = 0;
  following_ = true;
}

void NameTrace::Record(uint32_t step, std::string_view part) {
  if (following_) {
    path_ = PathAtCursor();
    steps_.resize(cursor_);
    following_ = false;
  }
  steps_.append(reinterpret_cast<const char*>(&step), sizeof(step));
  steps_.append(part);
  cursor_ = steps_.size();
  path_.Take(step, part);
}

bool NameTrace::End() {
  const bool same = following_ && cursor_ == steps_.size();
  steps_.resize(cursor_);
  return same;
}

std::string NameTrace::Name() const { return following_ ? PathAtCursor().name : path_.name; }

void NameTrace::Clear() {
  steps_.clear();
  path_ = Path();
  Begin();
}

}  // namespace tidemark
