#include "snapshot/snapshot_stream.h"

#include <utility>

namespace tidemark {

absl::Status SnapshotStream::AddConsumer(SnapshotConsumer* consumer) {
  auto executor = SerialExecutor::Create();
  if (!executor.ok()) return executor.status();
  subscriptions_.push_back({consumer, *std::move(executor)});
  return absl::OkStatus();
}

void SnapshotStream::Publish(std::shared_ptr<const StagedSnapshot> snapshot) {
  for (const Subscription& subscription : subscriptions_) {
    subscription.executor->Add(
        [consumer = subscription.consumer, snapshot]() mutable { consumer->Consume(std::move(snapshot)); });
  }
}

void SnapshotStream::Drain() {
  for (const Subscription& subscription : subscriptions_) subscription.executor->Drain();
}

}  // namespace tidemark
