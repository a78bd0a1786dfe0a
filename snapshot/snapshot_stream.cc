#include "snapshot/snapshot_stream.h"

#include <utility>

namespace tidemark {

void SnapshotStream::AddConsumer(SnapshotConsumer* consumer) {
  subscriptions_.push_back({consumer, std::make_unique<SerialExecutor>()});
}

void SnapshotStream::Publish(std::shared_ptr<const StagedSnapshot> snapshot) {
  for (const Subscription& subscription : subscriptions_) {
    subscription.executor->Add([consumer = subscription.consumer, snapshot] { consumer->Consume(snapshot); });
  }
}

void SnapshotStream::Drain() {
  for (const Subscription& subscription : subscriptions_) subscription.executor->Drain();
}

}  // namespace tidemark
