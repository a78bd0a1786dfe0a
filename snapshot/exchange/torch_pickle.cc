#include "snapshot/exchange/torch_pickle.h"

#include <bit>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"

namespace tidemark {
namespace {

using NodeKind = PickleNode::Kind;

constexpr uint32_t kMark = UINT32_MAX;  // on the stack, in place of a node

// Two names can be joined by three bytes, any number of times.
constexpr size_t kGlobalBytesMax = 1024;

// The stack machine that runs a pickle. The first error stops it.
class Machine {
 public:
  Machine(std::string_view bytes, size_t objects_max) : bytes_(bytes), objects_max_(objects_max) {}

  absl::StatusOr<Pickle> Run() {
    while (error_.ok()) {
      instruction_at_ = at_;
      const uint8_t instruction = Number<uint8_t>();
      if (!error_.ok()) break;
      if (instruction == '.') {
        pickle_.root = Pop();
        if (error_.ok()) return std::move(pickle_);
        break;
      }
      Execute(instruction);
    }
    return error_;
  }

 private:
  void Fail(std::string_view what) {
    if (error_.ok()) {
      error_ = absl::DataLossError(fmt::format("the pickle is damaged at byte {}: {}", instruction_at_, what));
    }
  }

  // ---- Bytes.

  std::string_view Take(uint64_t count) {
    if (count > bytes_.size() - at_) {
      Fail("it ends too early");
      return {};
    }
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  template <typename T>
  T Number() {
    T number = 0;
    const std::string_view taken = Take(sizeof(T));
    if (taken.size() == sizeof(T)) std::memcpy(&number, taken.data(), sizeof(T));
    return number;
  }
  std::string_view Line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) {
      Fail("a line does not end");
      return {};
    }
    const std::string_view line = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }

  // ---- Nodes and the stack.

  PickleNode& Push(NodeKind kind) {
    if (pickle_.nodes.size() > objects_max_) {
      if (error_.ok()) {
        error_ = absl::UnimplementedError(
            fmt::format("the pickle has more than {} objects, which are the most that are read", objects_max_));
      }
      return pickle_.nodes[kNothing];
    }
    stack_.push_back(static_cast<uint32_t>(pickle_.nodes.size()));
    PickleNode& node = pickle_.nodes.emplace_back();
    node.kind = kind;
    return node;
  }
  uint32_t Pop() {
    if (stack_.empty() || stack_.back() == kMark) {
      Fail("the stack is empty");
      return kNothing;
    }
    const uint32_t top = stack_.back();
    stack_.pop_back();
    return top;
  }
  // Removes the topmost mark and the nodes above it, and returns the nodes.
  std::vector<uint32_t> PopToMark() {
    size_t begin = stack_.size();
    while (begin > 0 && stack_[begin - 1] != kMark) --begin;
    if (begin == 0) {
      Fail("there is no mark");
      return {};
    }
    std::vector<uint32_t> nodes(stack_.begin() + static_cast<ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin - 1);
    return nodes;
  }
  std::vector<uint32_t> PopSeveral(size_t count) {
    std::vector<uint32_t> nodes(count);
    for (size_t i = count; i > 0; --i) nodes[i - 1] = Pop();
    return nodes;
  }
  // The node on top of the stack, which stays there.
  PickleNode& Top() {
    if (stack_.empty() || stack_.back() == kMark) {
      Fail("the stack is empty");
      return pickle_.nodes[kNothing];
    }
    return pickle_.nodes[stack_.back()];
  }
  void PushItems(NodeKind kind, std::vector<uint32_t> items) {
    if (kind == NodeKind::kDict && items.size() % 2 != 0) Fail("a key has no value");
    Push(kind).items = std::move(items);
  }
  void AddItems(const std::vector<uint32_t>& added, bool pairs) {
    if (pairs && added.size() % 2 != 0) Fail("a key has no value");
    PickleNode& node = Top();
    const bool holds_pairs = node.kind == NodeKind::kDict || node.kind == NodeKind::kCall;
    if (node.kind == NodeKind::kOther) return;  // a set
    if (pairs ? !holds_pairs : node.kind != NodeKind::kList && node.kind != NodeKind::kCall) {
      Fail("items are added to an object that takes none");
      return;
    }
    // Items of a list of another class are not needed.
    if (pairs || node.kind == NodeKind::kList) node.items.insert(node.items.end(), added.begin(), added.end());
  }
  void Call(bool has_keywords) {
    if (has_keywords) Pop();
    const uint32_t arguments = Pop();
    const uint32_t callee = Pop();
    PickleNode& node = Push(NodeKind::kCall);
    node.callee = callee;
    node.arguments = arguments;
  }
  void Remember(uint64_t id) {
    Top();
    if (error_.ok()) memo_[id] = stack_.back();
  }
  void Recall(uint64_t id) {
    const auto found = memo_.find(id);
    if (found == memo_.end()) return Fail("it refers to an object that does not exist");
    stack_.push_back(found->second);
  }
  void PushInteger(int64_t value) { Push(NodeKind::kInteger).integer = value; }
  void PushLong(uint64_t length) {
    const std::string_view digits = Take(length);
    if (digits.size() > sizeof(int64_t)) {
      Push(NodeKind::kOther);
      return;
    }
    // Little-endian, in two's complement.
    uint64_t value = !digits.empty() && (digits.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
    if (!digits.empty()) std::memcpy(&value, digits.data(), digits.size());
    PushInteger(static_cast<int64_t>(value));
  }
  void PushDouble() {  // big-endian
    uint64_t bits = 0;
    for (const char byte : Take(sizeof(bits))) bits = bits << 8 | static_cast<uint8_t>(byte);
    Push(NodeKind::kDouble).number = std::bit_cast<double>(bits);
  }
  void PushGlobal(std::string_view module, std::string_view name) {
    if (module.size() + name.size() > kGlobalBytesMax) return Fail("the name of a class is too long");
    pickle_.names.push_back(fmt::format("{}.{}", module, name));
    Push(NodeKind::kGlobal).text = pickle_.names.back();
  }
  void PushText(uint64_t length) { Push(NodeKind::kText).text = Take(length); }
  void SkipBytes(uint64_t length) {
    Take(length);
    Push(NodeKind::kOther);
  }

  void Execute(uint8_t instruction) {
    switch (instruction) {
      case 0x80:  // PROTO
        if (const auto protocol = Number<uint8_t>(); protocol < 2 || protocol > 5) {
          Fail(fmt::format("protocol {}; 2 to 5 are read", protocol));
        }
        return;
      case 0x95:  // FRAME
        Number<uint64_t>();
        return;
      case '(':
        stack_.push_back(kMark);
        return;
      case '0':
        Pop();
        return;
      case '1':
        PopToMark();
        return;
      case 'N':
        Push(NodeKind::kNone);
        return;
      case 0x8f:  // EMPTY_SET
        Push(NodeKind::kOther);
        return;
      case 0x88:
      case 0x89:
        Push(NodeKind::kBool).integer = instruction == 0x88 ? 1 : 0;
        return;
      case 'J':
        return PushInteger(Number<int32_t>());
      case 'K':
        return PushInteger(Number<uint8_t>());
      case 'M':
        return PushInteger(Number<uint16_t>());
      case 0x8a:
        return PushLong(Number<uint8_t>());
      case 0x8b:
        return PushLong(Number<uint32_t>());
      case 'G':
        return PushDouble();
      case 'X':
      case 'T':
        return PushText(Number<uint32_t>());
      case 0x8c:
      case 'U':
        return PushText(Number<uint8_t>());
      case 0x8d:
        return PushText(Number<uint64_t>());
      case 'B':
        return SkipBytes(Number<uint32_t>());
      case 'C':
        return SkipBytes(Number<uint8_t>());
      case 0x8e:
        return SkipBytes(Number<uint64_t>());
      default:
        return ExecuteOnObjects(instruction);
    }
  }

  void ExecuteOnObjects(uint8_t instruction) {
    switch (instruction) {
      case ')':
        return PushItems(NodeKind::kTuple, {});
      case ']':
        return PushItems(NodeKind::kList, {});
      case '}':
        return PushItems(NodeKind::kDict, {});
      case 't':
        return PushItems(NodeKind::kTuple, PopToMark());
      case 'l':
        return PushItems(NodeKind::kList, PopToMark());
      case 'd':
        return PushItems(NodeKind::kDict, PopToMark());
      case 0x85:
      case 0x86:
      case 0x87:
        return PushItems(NodeKind::kTuple, PopSeveral(instruction - 0x84U));
      case 'a':
        return AddItems(PopSeveral(1), /*pairs=*/false);
      case 'e':
      case 0x90:  // ADDITEMS, of a set
        return AddItems(PopToMark(), /*pairs=*/false);
      case 's':
        return AddItems(PopSeveral(2), /*pairs=*/true);
      case 'u':
        return AddItems(PopToMark(), /*pairs=*/true);
      case 0x91:  // FROZENSET
        PopToMark();
        Push(NodeKind::kOther);
        return;
      case 'c': {
        const std::string_view module = Line();
        return PushGlobal(module, Line());
      }
      case 0x93: {  // STACK_GLOBAL
        const std::vector<uint32_t> names = PopSeveral(2);
        return PushGlobal(pickle_.nodes[names[0]].text, pickle_.nodes[names[1]].text);
      }
      case 'R':
      case 0x81:  // NEWOBJ
        return Call(/*has_keywords=*/false);
      case 0x92:  // NEWOBJ_EX
        return Call(/*has_keywords=*/true);
      case 'b': {
        const uint32_t state = Pop();
        Top().state = state;
        return;
      }
      case 'Q': {
        const uint32_t arguments = Pop();
        Push(NodeKind::kPersistent).arguments = arguments;
        return;
      }
      case 'q':
        return Remember(Number<uint8_t>());
      case 'r':
        return Remember(Number<uint32_t>());
      case 0x94:  // MEMOIZE
        return Remember(memo_.size());
      case 'h':
        return Recall(Number<uint8_t>());
      case 'j':
        return Recall(Number<uint32_t>());
      default:
        error_ = absl::UnimplementedError(fmt::format(
            "the pickle has instruction {:#04x} at byte {}, which is not read", instruction, instruction_at_));
    }
  }

  static constexpr uint32_t kNothing = 0;  // the node that a failed machine works on

  const std::string_view bytes_;
  const size_t objects_max_;
  size_t at_ = 0;
  size_t instruction_at_ = 0;
  Pickle pickle_{.nodes = std::vector<PickleNode>(1)};
  std::vector<uint32_t> stack_;
  absl::flat_hash_map<uint64_t, uint32_t> memo_;
  absl::Status error_;
};

}  // namespace

absl::StatusOr<Pickle> ReadPickle(std::string_view bytes, size_t objects_max) {
  return Machine(bytes, objects_max).Run();
}

}  // namespace tidemark
