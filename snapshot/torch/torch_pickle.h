// Pickles as data: reads pickles of Python and LibTorch without calling or importing anything.
//
// A call in the pickle becomes a node with the function and the arguments. Thread-safe: functions only.

#ifndef TIDEMARK_SNAPSHOT_TORCH_TORCH_PICKLE_H_
#define TIDEMARK_SNAPSHOT_TORCH_TORCH_PICKLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tidemark {

// An object of a pickle. Others are referred to by their index in Pickle::nodes; cycles are possible.
struct PickleNode {
  enum class Kind {
    kOther,       // a float, None, bytes, a set, an integer beyond 64 bits: nothing that is needed
    kInteger,     // or a bool
    kText,        // a string
    kGlobal,      // a function or class: `text` is "module.name"
    kTuple,       // `items`
    kList,        // `items`
    kDict,        // `items`: key, value, key, ...
    kCall,        // of the global `callee` with the tuple `arguments`; `items` were set in the result, as in a dict
    kPersistent,  // an object outside of the pickle, named by the tuple `arguments`
  };
  Kind kind = Kind::kOther;
  int64_t integer = 0;
  std::string text;
  std::vector<size_t> items;
  size_t callee = 0;
  size_t arguments = 0;
  std::optional<size_t> state;  // kCall: the values of the result's fields
};

struct Pickle {
  std::vector<PickleNode> nodes;
  size_t root = 0;
};

// Takes memory in proportion to the bytes. Reads the instructions of protocols 2 to 5 that Python's own classes need.
// kDataLoss: the bytes are not a pickle. kUnimplemented: an instruction is not supported. Both messages name the
// offset.
absl::StatusOr<Pickle> ReadPickle(std::string_view bytes);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_PICKLE_H_
