// Learning rate schedulers as entries: their counters. The rates are the optimizer's.

#ifndef TIDEMARK_SNAPSHOT_TORCH_TORCH_SCHEDULER_SOURCE_H_
#define TIDEMARK_SNAPSHOT_TORCH_TORCH_SCHEDULER_SOURCE_H_

#include <memory>
#include <string>

#include "snapshot/torch/torch_sources.h"
#include "tidemark/torch.h"

namespace tidemark {

std::unique_ptr<TorchSource> MakeSchedulerSource(std::string name, torch::optim::LRScheduler& scheduler);
#if TIDEMARK_HAS_PLATEAU_SCHEDULER
std::unique_ptr<TorchSource> MakeSchedulerSource(std::string name, torch::optim::ReduceLROnPlateauScheduler& scheduler);
#endif

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_SCHEDULER_SOURCE_H_
