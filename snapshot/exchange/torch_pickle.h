// Pickles as data: reads pickles of Python and LibTorch without calling or importing anything.
//
// A call in the pickle becomes a node with the function and the arguments. Thread-safe: functions only.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_TORCH_PICKLE_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_TORCH_PICKLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tidemark {

// An object of a pickle. Others are referred to by their index in Pickle::nodes; cycles are possible.
struct PickleNode {
  enum class Kind : uint8_t {
    kOther,       // bytes, a set, an integer beyond 64 bits: nothing that is needed
    kNone,        // None
    kBool,        // `integer` is 0 or 1
    kInteger,     // `integer`
    kDouble,      // `number`
    kText,        // a string
    kGlobal,      // a function or class: `text` is "module.name"
    kTuple,       // `items`
    kList,        // `items`
    kDict,        // `items`: key, value, key, ...
    kCall,        // of the global `callee` with the tuple `arguments`; `items` were set in the result, as in a dict
    kPersistent,  // an object outside of the pickle, named by the tuple `arguments`
  };
  Kind kind = Kind::kOther;
  uint32_t callee = 0;
  uint32_t arguments = 0;
  std::optional<uint32_t> state;  // kCall: the values of the result's fields
  int64_t integer = 0;
  double number = 0;
  std::string_view text;  // in the pickle's bytes or in Pickle::names
  std::vector<uint32_t> items;
};

// Bytes that ReadPickle has read must outlive it.
struct Pickle {
  std::vector<PickleNode> nodes;
  uint32_t root = 0;
  std::deque<std::string> names;  // of globals
};

// A tensor of torch.save has some 20 objects. So many take about 130 MiB.
inline constexpr size_t kPickleObjectsMax = (size_t{1} << 20) - 1;

// Takes memory in proportion to the bytes. Reads the instructions of protocols 2 to 5 that Python's own classes need.
// kDataLoss: the bytes are not a pickle. kUnimplemented: an instruction is not supported, or there are more objects
// than `objects_max`, which is less than 2^32. All messages but the last name the offset.
absl::StatusOr<Pickle> ReadPickle(std::string_view bytes, size_t objects_max = kPickleObjectsMax);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_TORCH_PICKLE_H_
