// SnapshotStream: the ordered publication of snapshots to consumers. The persister is one of them.

#ifndef TIDEMARK_SNAPSHOT_SNAPSHOT_STREAM_H_
#define TIDEMARK_SNAPSHOT_SNAPSHOT_STREAM_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "snapshot/serial_executor.h"
#include "snapshot/staged_snapshot.h"

namespace tidemark {

class SnapshotConsumer {
 public:
  virtual ~SnapshotConsumer() = default;

  // Called on the consumer's own thread, once for each snapshot, in the order of publication.
  // Its memory goes back when the last consumer lets go of `snapshot`.
  virtual void Consume(std::shared_ptr<const StagedSnapshot> snapshot) = 0;
};

// Publish may be called by one thread at a time. Each consumer has a thread and lags behind on its own; the snapshots
// it has not come to hold staging memory, whose bound is the only bound there is.
class SnapshotStream {
 public:
  // Not owned; must outlive the stream. Before the first Publish. kResourceExhausted: no thread for it.
  absl::Status AddConsumer(SnapshotConsumer* consumer);

  void Publish(std::shared_ptr<const StagedSnapshot> snapshot);

  // Blocks until every consumer has come to the end.
  void Drain();

 private:
  struct Subscription {
    SnapshotConsumer* consumer;
    std::unique_ptr<SerialExecutor> executor;
  };
  std::vector<Subscription> subscriptions_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_SNAPSHOT_STREAM_H_
