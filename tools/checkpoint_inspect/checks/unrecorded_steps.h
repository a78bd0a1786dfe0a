// Steps whose files are all there and of which the manifest has no record, as where the end of its log was cut off or
// its file is gone: nothing in what is left of the manifest tells that it had more. A crash between the files of a step
// and its record leaves the same.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_UNRECORDED_STEPS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_UNRECORDED_STEPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {

// Ascending. Of those that the next opening of the store would take in, as far as headers and indices tell, all that
// the loss of records explains: an attempt without a deletion mark whose step has no record, or that of an earlier
// attempt. (Not what somebody has put back of a step that is deleted, lost or damaged by now.) None where somebody
// holds the store, who may be about to record them. Reads the index of each attempt that no record names, and of no
// other. `reader` is refreshed where there are any, for they may have been recorded since it looked. `directory`: the
// store's, without links.
//
// An error says that something could not be looked at. kCancelled: interrupted. Precondition: the reader's steps come
// from the manifest.
absl::StatusOr<std::vector<int64_t>> FindUnrecordedSteps(storage::FileSystem& files, StoreReader& reader,
                                                         const std::string& directory);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_UNRECORDED_STEPS_H_
