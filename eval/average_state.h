// AverageState: the tensors of an average, in memory of its own.

#ifndef TIDEMARK_EVAL_AVERAGE_STATE_H_
#define TIDEMARK_EVAL_AVERAGE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tidemark/state.h"

namespace tidemark {

// Entries: "<prefix>.snapshots", how many were taken in, and the tensors. Thread-compatible.
//
// A restore fills tensors beside the present ones, which go when it has succeeded; so it takes the memory twice for as
// long as it runs, and one that fails leaves everything as it was.
class AverageState final : public State {
 public:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  struct Tensor {
    EntrySpec spec;  // under the name that the average has
    uint64_t bytes = 0;
    std::unique_ptr<std::byte, Free> memory;  // null: empty, or tied to an earlier one
    int64_t alias_of = -1;                    // index of that
  };

  explicit AverageState(const std::string& prefix);

  // A tensor with memory of its own, or tied to the one of index `alias_of`. kInvalidArgument: a rule of ValidateEntry.
  // kResourceExhausted: no memory; the message names the entry.
  static absl::StatusOr<Tensor> MakeTensor(EntrySpec spec, int64_t alias_of);

  const std::string& snapshots_name() const { return snapshots_name_; }
  int64_t snapshots() const { return snapshots_; }
  void set_snapshots(int64_t snapshots) { snapshots_ = snapshots; }

  // The step that was taken in last; none after a restore.
  std::optional<int64_t> last_step() const { return last_step_; }
  void set_last_step(std::optional<int64_t> step) { last_step_ = step; }

  std::span<const Tensor> tensors() const { return tensors_; }
  std::byte* data(size_t tensor) const { return tensors_[owner(tensor)].memory.get(); }
  void SetTensors(std::vector<Tensor> tensors);

  // The numbers of the float64 tensor of this name: of a restore if it had as many, else zeros. kResourceExhausted: no
  // memory. Valid until the next SetTensors, Drop or restore.
  absl::StatusOr<std::span<double>> Numbers(const std::string& name, int64_t count);
  // Removes the tensor of this name, if there is one.
  void Drop(const std::string& name);

  // The index of the tensor whose memory holds this one: its own, or the one that it is tied to.
  size_t owner(size_t tensor) const {
    return tensors_[tensor].alias_of < 0 ? tensor : static_cast<size_t>(tensors_[tensor].alias_of);
  }
  // Makes two tensors share their memory. False, and nothing is changed, if they are not the same.
  bool Tie(size_t a, size_t b);

  absl::Status PrepareRestore(std::span<const EntrySpec> saved) override;
  absl::Status Receive(size_t entry, std::span<const std::byte> bytes) override;
  absl::Status FinishRestore() override;
  void AbandonRestore() override;

 private:
  void Publish(const std::vector<Tensor>& tensors);

  const std::string snapshots_name_;
  int64_t snapshots_ = 0;
  std::optional<int64_t> last_step_;
  std::vector<Tensor> tensors_;
  std::vector<Tensor> incoming_;  // of the restore that runs
};

}  // namespace tidemark

#endif  // TIDEMARK_EVAL_AVERAGE_STATE_H_
