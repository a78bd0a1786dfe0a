// Pickles that a test puts together, instruction by instruction, as Python's pickle writes them.

#ifndef TIDEMARK_TESTS_SNAPSHOT_EXCHANGE_TORCH_PICKLE_TESTING_H_
#define TIDEMARK_TESTS_SNAPSHOT_EXCHANGE_TORCH_PICKLE_TESTING_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark::pickled {

template <typename T>
std::string Raw(T number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

inline std::string Joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}

inline std::string Text(std::string_view text) {
  return "X" + Raw(static_cast<uint32_t>(text.size())) + std::string(text);
}
inline std::string Integer(int32_t value) { return "J" + Raw(value); }
inline std::string Global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string Tuple(const std::vector<std::string>& items) { return "(" + Joined(items) + "t"; }
inline std::string Call(const std::string& callee, const std::vector<std::string>& arguments) {
  return callee + Tuple(arguments) + "R";
}
// Keys and values in turn.
inline std::string WithItems(const std::string& object, const std::vector<std::string>& items) {
  return object + "(" + Joined(items) + "u";
}
inline std::string Dict(const std::vector<std::string>& items) { return WithItems("}", items); }
inline std::string OrderedDict(const std::vector<std::string>& items) {
  return WithItems(Call(Global("collections", "OrderedDict"), {}), items);
}
inline std::string WithState(const std::string& object, const std::string& state) { return object + state + "b"; }

inline std::string Integers(const std::vector<int32_t>& values) {
  std::vector<std::string> items;
  for (const int32_t value : values) items.push_back(Integer(value));
  return Tuple(items);
}

// A tensor as torch.save pickles it.
inline std::string Tensor(const std::string& record, int32_t offset, const std::vector<int32_t>& sizes,
                          const std::vector<int32_t>& strides, const std::string& storage_type = "FloatStorage",
                          const std::string& rebuild = "_rebuild_tensor_v2") {
  const std::string storage =
      Tuple({Text("storage"), Global("torch", storage_type), Text(record), Text("cpu"), Integer(1)}) + "Q";
  return Call(Global("torch._utils", rebuild),
              {storage, Integer(offset), Integers(sizes), Integers(strides), "\x89", OrderedDict({})});
}

inline std::string Whole(const std::string& object) { return "\x80\x02" + object + "."; }

}  // namespace tidemark::pickled

#endif  // TIDEMARK_TESTS_SNAPSHOT_EXCHANGE_TORCH_PICKLE_TESTING_H_
